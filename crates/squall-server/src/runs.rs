//! Runs that go on: from a session that may begin to what came of it in the history.

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
use squall_control::driving::{Driven, LiveReport, Start};
use squall_report::conversations::Flows;

use crate::{
    Refusal,
    author::{Author, note},
    cluster::ClusterProgress,
    connection::Connection,
    error::Detail,
    history,
    job::{Action, Came, DEFECT, Ended, Job, Judged, OnPorts, Ports, Work},
    leases::{Held, Keep, Lease},
    metrics::{self, Figures},
    service::Service,
    testing::TestProgress,
};

/// Between two reports of a run that are stored while it goes on: what a daemon that is killed
/// loses. Twice that is promised, as a busy machine takes its time.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// The first of these, after the start.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(1);
/// Leases that are over, of which it is known why.
const LEASES_ENDED: usize = 1000;
/// Runs at once.
const MOST: usize = 64;

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
    /// Factor between all rates and those of the profile; `null`: a total was requested.
    #[serde(default)]
    pub mult: Option<f64>,
    /// All of its own frames are sent; it goes on to receive those of other nodes.
    #[serde(default)]
    pub sent_all: bool,
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
    // Several of the above; `parts` of the row names them.
    Mix,
    Capture,
    Otg,
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    /// All is open, and it waits for `go`.
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
    /// It goes on no more.
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
            Self::Capture => "capture",
            Self::Otg => "otg",
            Self::Test => "test",
        }
    }

    pub fn of(session: &Session) -> Self {
        match Self::parts(session)[..] {
            [] => Self::Capture,
            [only] => only,
            _ => Self::Mix,
        }
    }

    /// What a session sends.
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

    /// Whether runs of this kind have a report, and no outcome of a standard test in its place.
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

/// What is to be run, and for whom.
pub struct Wanted {
    pub session: Session,
    pub kind: Kind,
    pub name: String,
    pub owner: String,
    /// What holds the ports; `None`: a lease of the run's own is made.
    pub lease: Option<String>,
    pub ttl: Duration,
    /// The run's own lease lasts as long as the run.
    pub detached: bool,
    /// As it was written, for the history.
    pub text: String,
    pub format: &'static str,
    pub fail_if: Vec<FailIf>,
}

/// A run that goes on.
pub struct Live {
    row: Mutex<RunRow>,
    /// Not there while it starts.
    job: OnceLock<Arc<dyn Job>>,
    pub text: String,
    fail_if: Vec<FailIf>,
    /// Its options have criteria, too.
    aborts: bool,
    since: Instant,
    /// It made its lease itself, and takes it along.
    own_lease: bool,
    /// It is to stop because of this, which is told at the end.
    because: Mutex<Option<Because>>,
    finished: AtomicBool,
    /// The history has what came of it: nobody may write there any more what it was before.
    written: Mutex<bool>,
    /// When its report so far is stored next.
    checkpoint: Mutex<Instant>,
    /// It only receives.
    listens: bool,
}

/// Why a run ends before its time.
#[derive(Clone)]
pub enum Because {
    /// Whoever holds its ports wants it so.
    Asked(&'static str),
    /// Somebody else, or nobody.
    Interrupted(String),
}

#[derive(Default)]
pub struct Runs {
    live: Mutex<BTreeMap<String, Arc<Live>>>,
    last: Mutex<Numbers>,
    /// What came of those that have ended lately, the latest last.
    lately: Mutex<VecDeque<(Instant, RunRow, Arc<Figures>)>>,
    /// Counts changes of runs and leases, so that who watches looks again.
    changed: tokio::sync::watch::Sender<u64>,
    pub started: std::sync::atomic::AtomicU64,
}

/// The day, the last number on it, and the number up to which none is given again.
#[derive(Default)]
struct Numbers {
    day: String,
    last: u64,
    reserved: u64,
}

impl Because {
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

    /// It is this from now on, and in this state, unless it was stopped meanwhile.
    pub fn is(&self, job: Arc<dyn Job>, state: State) {
        let job = self.job.get_or_init(|| job);
        self.set_state(&[State::Starting], state);
        if lock(&self.row).state == State::Stopping {
            job.stop();
        }
    }

    /// Whether it is known what it is: [`Live::is`].
    pub fn has_job(&self) -> bool {
        self.job.get().is_some()
    }

    /// The latest sample and report; `None` before the first, and where there is none but at the
    /// end.
    pub fn latest(&self) -> Option<Arc<LiveReport>> {
        self.job.get()?.latest()
    }

    /// What it has come to so far.
    pub fn so_far(&self) -> Option<Came> {
        self.job.get()?.so_far()
    }

    /// # Errors
    /// A run that has not begun, or is over.
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

    /// Does something to it, and notes the state that it is in then.
    ///
    /// # Errors
    /// A run that has not begun, is over, or refuses.
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
        // A stop that comes meanwhile is told to a run that has begun.
        let mut row = lock(&self.row);
        if row.state != State::Ready {
            let message = format!("the run is {}, not ready\n  try hold = true", row.state.word());
            return Err(Refusal::conflict("not-ready", message));
        }
        job.apply(action)?;
        row.state = State::Running;
        Ok(())
    }

    /// Flows that it has received so far; `None` where they are not told apart.
    ///
    /// # Errors
    /// A run that has not begun, is over, or receives nothing itself.
    pub fn received_flows(&self) -> Result<Option<Arc<Flows>>, Refusal> {
        self.job()?.received_flows()
    }

    pub fn is_over(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Nothing more is sent; `because` is told with what came of it.
    pub fn stop(&self, because: Option<&Because>) {
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

    /// It is called or noted otherwise.
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

    /// Those that go on, the oldest first.
    pub fn all(&self) -> Vec<Arc<Live>> {
        lock(&self.live).values().cloned().collect()
    }

    pub fn of_lease(&self, lease: &str) -> Vec<Arc<Live>> {
        self.all()
            .into_iter()
            .filter(|live| lock(&live.row).lease.as_deref() == Some(lease))
            .collect()
    }

    /// Those that have its ports open still.
    fn on_lease(&self, lease: &str) -> Vec<Arc<Live>> {
        self.of_lease(lease).into_iter().filter(|live| !live.is_over()).collect()
    }

    /// What came of those that have ended lately.
    pub fn lately(&self, now: Instant) -> Vec<(RunRow, Arc<Figures>)> {
        let mut lately = lock(&self.lately);
        lately.retain(|(ended, ..)| now.duration_since(*ended) < metrics::STAY);
        lately.iter().map(|(_, row, figures)| (row.clone(), figures.clone())).collect()
    }

    fn ended(&self, row: &RunRow, came: &Came) {
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
            // On a full disk it is tried again with the next.
            numbers.reserved =
                service.history.reserve(&numbers.day, numbers.last).unwrap_or(numbers.reserved);
        }
        Ok(format!("r-{}-{:04}", numbers.day, numbers.last))
    }

    /// No number comes any more.
    fn end_numbers(&self, service: &Service) {
        let numbers = lock(&self.last);
        if !numbers.day.is_empty() {
            service.history.reserved(&numbers.day, numbers.last);
        }
    }
}

impl Service {
    /// Leases the ports, if that has not been done, and starts. Takes as long as opening ports and
    /// solving rules does.
    ///
    /// # Errors
    /// Ports that others hold or that are not allowed, files elsewhere, and what the session
    /// refuses.
    pub fn start<W: Work>(
        self: &Arc<Self>,
        mut wanted: Wanted,
        work: W,
    ) -> Result<(Arc<Live>, Arc<W::Job>), Refusal> {
        self.has_room()?;
        self.files.check(&wanted.session.profile)?;
        let ports = work.ports(self, &mut wanted.session)?;
        let (live, session) = self.enter(wanted, ports)?;
        let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work.begin(self, &live, session)
        }));
        self.runs.touch();
        match begun {
            Ok(Ok(job)) => Ok((live, job)),
            Ok(Err(error)) => {
                self.take_back(&live, &error);
                Err(self.files.unsaid(error.into()))
            }
            Err(_) => {
                self.fail(&live, DEFECT);
                Err(Refusal::defect())
            }
        }
    }

    fn has_room(&self) -> Result<(), Refusal> {
        if lock(&self.runs.live).len() >= MOST {
            return Err(Refusal::conflict(
                "too_many_runs",
                format!("{MOST} runs are running\n  try to stop one"),
            ));
        }
        if *self.ending.borrow() {
            return Err(Refusal::conflict("ending", "the daemon is stopping"));
        }
        Ok(())
    }

    /// The ports of a session, which get the addresses at which they are opened.
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

    /// Leases the ports of a run, and enters it into the history and among those that go on.
    fn enter(
        self: &Arc<Self>,
        wanted: Wanted,
        ports: Ports,
    ) -> Result<(Arc<Live>, Session), Refusal> {
        let Wanted { session, kind, name, owner, lease, ttl, detached, text, .. } = wanted;
        let (format, fail_if) = (wanted.format, wanted.fail_if);
        let Ports { leased, shown } = ports;
        let own_lease = lease.is_none();
        let lease = match lease {
            Some(id) => self.covers(&id, &leased)?,
            None => {
                self.lease(&owner, leased, ttl, if detached { Keep::Run } else { Keep::Renewed })?
            }
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
            because: Mutex::default(),
            finished: AtomicBool::new(false),
            written: Mutex::default(),
            checkpoint: Mutex::new(Instant::now() + FIRST_CHECKPOINT),
            listens: Kind::of(&session) == Kind::Capture,
            row: Mutex::new(row.clone()),
        });
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

    /// How a run is that goes on, for the history; whether it does.
    ///
    /// # Errors
    /// A disk that is full.
    pub fn note(&self, live: &Live, row: &RunRow) -> Result<bool, rusqlite::Error> {
        let written = lock(&live.written);
        if !*written {
            self.history.update(row, None)?;
        }
        Ok(!*written)
    }

    /// Stores reports of runs that go on, if it is time. Takes as long as packing and writing them
    /// does.
    pub fn checkpoint(&self) {
        for live in self.runs.all() {
            if *lock(&live.checkpoint) > Instant::now() {
                continue;
            }
            // Where nothing is measured yet, and of nodes, which report at the end, it is the row.
            let so_far = live.so_far().filter(|came| !came.is_empty());
            let report = so_far.and_then(|came| came.packed(self));
            let written = lock(&live.written);
            if !*written {
                // A disk that is full is told when the run ends.
                _ = self.history.update(&live.row(), report);
            }
            drop(written);
            *lock(&live.checkpoint) = Instant::now() + CHECKPOINT;
        }
    }

    /// It did not begin, and who asked is told why: there is nothing to keep of it.
    fn take_back(&self, live: &Arc<Live>, why: &Error) {
        if live.finished.swap(true, Ordering::AcqRel) {
            return;
        }
        let row = live.row();
        *lock(&live.written) = true;
        if let Err(error) = self.history.delete(&row.id) {
            // A disk that is full now, perhaps: the next start of the daemon finds it broken off.
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
        // Its streams were made, perhaps.
        self.memory.used(None);
        self.runs.touch();
    }

    /// Its job has an outcome, which goes to the history.
    pub fn finish(&self, live: &Arc<Live>) {
        match live.job.get().and_then(|job| job.outcome()) {
            Some(ended) => self.finish_as(live, ended),
            None => self.fail(live, "the run ended without a report"),
        }
    }

    /// It has come to nothing.
    pub fn fail(&self, live: &Arc<Live>, why: &str) {
        self.finish_as(live, Err(Arc::new(Error::Environment(why.into()))));
    }

    /// Once: what came of it goes to the history, then its ports are free, and only then is it told
    /// as over: who waited for that has the report, and the ports for the next run.
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
        // Streams, counters, and frames.
        self.memory.used(None);
        self.runs.touch();
    }

    /// The ports of a lease that was the run's own, or that waits for its last run to end.
    fn give_back(&self, live: &Live, id: &str) {
        let own = if live.own_lease { lock(&self.leases).release(id) } else { None };
        match own {
            // Others may have been started on it.
            Some(lease) => {
                let because = Because::interrupted("the run that had leased its ports has ended");
                self.stop_on(&lease, &because);
            }
            None if self.runs.on_lease(id).is_empty() => lock(&self.leases).ended(id),
            None => {}
        }
    }

    /// Now, as leases know it.
    pub fn now(&self) -> Duration {
        self.since.elapsed()
    }

    /// # Errors
    /// All ports that others hold.
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

    /// A lease that holds all these ports, renewed.
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

    /// The time until the next lease is over, unless it is renewed.
    pub fn next_expiry(&self) -> Option<Duration> {
        lock(&self.leases).next_expiry(self.now())
    }

    /// Leases that are over take their runs along.
    pub fn expire(self: &Arc<Self>) {
        let over = lock(&self.leases).expire(self.now());
        for lease in &over {
            let because =
                Because::interrupted("its lease has expired: its client sent no requests");
            let ports: Vec<_> = lease.ports.iter().map(|(address, _)| address.as_str()).collect();
            let detail = format!("{} of {}: {}", lease.id, lease.owner, ports.join(", "));
            self.audit(&Author::daemon(), "lease expired", None, detail);
            self.end_lease(lease, &because);
        }
        if !over.is_empty() {
            self.runs.touch();
        }
    }

    /// Stops what runs on the ports of a lease that is over.
    pub fn end_lease(self: &Arc<Self>, lease: &Lease, because: &Because) {
        let mut ended = lock(&self.ended);
        if ended.len() == LEASES_ENDED {
            ended.pop_front();
        }
        ended.push_back((lease.id.clone(), because.text().to_owned()));
        drop(ended);
        // Its session has to know that its ports are gone, or it would go on from what it believes.
        if let Some(session) = otg_session(&lease.owner) {
            let (service, session, why) =
                (self.clone(), session.to_owned(), because.text().to_owned());
            std::thread::spawn(move || service.otg.expire(&session, &why));
        }
        self.stop_on(lease, because);
    }

    fn stop_on(&self, lease: &Lease, because: &Because) {
        let runs = self.runs.on_lease(&lease.id);
        runs.iter().for_each(|live| live.stop(Some(because)));
        if runs.is_empty() {
            lock(&self.leases).ended(&lease.id);
        }
        self.runs.touch();
    }

    /// A request has named the run: its own lease is kept.
    pub fn heard_of(&self, live: &Live) {
        let lease = live.own_lease.then(|| lock(&live.row).lease.clone()).flatten();
        if let Some(lease) = lease {
            _ = lock(&self.leases).renew(self.now(), &lease);
        }
    }

    /// All runs end; those that do not in time are failed ones.
    pub async fn end(&self) {
        self.history.catch_up();
        let runs = self.runs.all();
        for live in &runs {
            live.stop(Some(&Because::interrupted("the daemon ended")));
        }
        let patience = Instant::now() + Duration::from_millis(1500);
        while !lock(&self.runs.live).is_empty() && Instant::now() < patience {
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
    /// A lease that is over, and why: who held it hears who took it away.
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
    // The two ends of a link have one address.
    details.dedup();
    let told: Vec<_> =
        details.iter().map(|detail| format!("{}: {}", detail.path, detail.message)).collect();
    let message = format!(
        "{}\n  try to wait, or POST /squall/v1/leases/release to take it away",
        told.join("\n")
    );
    Refusal::conflict("port_in_use", message).with(details)
}

/// `mix of streams and attacks`
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

/// Runs of Open Traffic Generator and of TRex: ports and files as for all, a lease that is kept by
/// the connections of its owner.
pub struct ManagedStart {
    service: Weak<Service>,
    /// `otg/alice`
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

    fn begin(&mut self, name: &str, session: Session) -> Result<Arc<Driven>, Refusal> {
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
            detached: false,
            text: session.profile.to_toml(),
            format: "toml",
            fail_if: Vec::new(),
            session,
        };
        let (_, here) = service.start(wanted, OnPorts { hold: false })?;
        Ok(here.driven.clone())
    }

    /// What this session held before may still be ending: that is nobody else.
    fn wait_for_own(&self, service: &Service, ports: &[(String, Option<String>)]) {
        let ending = |(_, what): &(String, Option<String>)| {
            let leases = lock(&service.leases);
            what.as_ref()
                .and_then(|what| leases.holder(what))
                .is_some_and(|l| l.ending && l.owner == self.owner)
        };
        let patience = Instant::now() + Duration::from_secs(3);
        while ports.iter().any(ending) && Instant::now() < patience {
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
                service.stop_on(&lease, &Because::Asked("its ports were returned"));
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
            // There is none, or it has expired.
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
    fn start(&mut self, name: &str, session: Session) -> Result<Arc<Driven>, Error> {
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

/// What sessions of Open Traffic Generator need of the daemon.
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

/// The session whose ports that owner holds; no user may call himself so (`api::ports::owner`).
pub fn otg_session(owner: &str) -> Option<&str> {
    if owner == "otg" { Some("") } else { owner.strip_prefix("otg/") }
}

/// Who holds the ports of a session of Open Traffic Generator.
pub fn otg_owner(session: &str) -> String {
    if session.is_empty() { "otg".into() } else { format!("otg/{session}") }
}

impl Service {
    /// A request of `owner` has come over the connection: as long as that is open, its leases are
    /// kept.
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

    /// The file that a capture writes.
    ///
    /// # Errors
    /// A name that leads elsewhere; a folder that cannot be made.
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
        let mix = session(&format!("{stream}{replay}"));
        let (kind, parts) = (Kind::of(&mix), Kind::parts(&mix));
        assert_eq!((kind, &parts[..]), (Kind::Mix, &[Kind::Streams, Kind::Replay][..]));
        assert_eq!(title(kind, &parts), "mix of streams and replay");
    }

    #[test]
    fn a_defect_in_a_run_is_told_as_its_failure_and_its_ports_are_free() {
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
            detached: false,
            text: text.into(),
            format: "toml",
            fail_if: Vec::new(),
        };
        let start = |text: &str| service.start(wanted(text), OnPorts { hold: false });
        let (defect, _) = start(&format!("{text}# a defect on purpose")).expect("it starts");
        let id = defect.row().id;
        let patience = Instant::now() + Duration::from_secs(20);
        while service.runs.get(&id).is_some() {
            assert!(Instant::now() < patience, "it goes on");
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
            assert!(Instant::now() < patience, "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(service);
        std::fs::remove_dir_all(data).expect("removed");
    }
}
