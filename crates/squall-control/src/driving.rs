//! Runs that have their own thread, for callers that cannot block. All such runs above the facade
//! are driven here: runs of a [`Control`](crate::Control), of the daemon, and recordings.

use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::Thread,
    time::{Duration, Instant},
};

use squall_units::Nanos;

use squall::{
    Error, Held, Run, Session,
    report::{EndedBy, NodeClock, Report, Sample},
    totals::Totals,
};

/// Interval for checking whether the run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of consecutive reports without a new frame after which a file counts as read to its end.
const QUIET: u32 = 3;

/// Starts runs. Used where another component gives permission to hold ports and to read files.
pub trait Start: Send {
    /// Starts a run.
    ///
    /// # Errors
    ///
    /// If the session has an error, or permission is denied.
    fn start(&mut self, name: &str, session: Session) -> Result<Arc<DrivenRun>, Error>;

    /// Reserves the ports at these addresses for later runs, in place of those reserved so far. An
    /// empty list frees all.
    ///
    /// # Errors
    /// If another owner holds a port, or an address is not allowed. The previous reservation is
    /// then kept.
    fn take(&mut self, _addresses: &[String]) -> Result<(), Error> {
        Ok(())
    }

    /// The path of the file that runs read under this name.
    ///
    /// # Errors
    /// If runs may not read the file.
    fn file(&self, name: &str) -> Result<PathBuf, Error> {
        Ok(name.into())
    }
}

/// Starts runs without asking, on any port. Reports are made at this interval.
pub struct InProcess(pub Duration);

impl Default for InProcess {
    fn default() -> Self {
        Self(Duration::from_secs(1))
    }
}

impl Start for InProcess {
    fn start(&mut self, _name: &str, session: Session) -> Result<Arc<DrivenRun>, Error> {
        DrivenRun::start(session, self.0, |_| {})
    }
}

/// The report of a live run, and the sample taken together with it.
#[derive(Clone, Debug)]
pub struct LiveReport {
    /// Rates since the previous sample.
    pub sample: Sample,
    /// The report so far.
    pub report: Report,
    pub taken: Instant,
}

/// The reason why a run did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// The run was not held.
    NotReady,
    /// The start time passed this long ago.
    TooLate(Nanos),
}

/// A run that drives itself. Dropping this does not end the run: call [`DrivenRun::stop`].
pub struct DrivenRun {
    /// The opened run; `None` once it has started.
    held: Mutex<Option<Held>>,
    /// `None` before the start, while the run is being finished, and after it has ended.
    run: Mutex<Option<Run>>,
    /// Whether all frames have been sent. Frames from other nodes may still arrive here.
    sent_all: AtomicBool,
    latest: Mutex<Option<Arc<LiveReport>>>,
    recent: Mutex<Recent>,
    /// The final report, or the error that ended the run.
    outcome: Mutex<Option<Result<Arc<Report>, Arc<Error>>>>,
    over: Condvar,
    stopped: AtomicBool,
    /// Unparked on a stop, so that the run ends without waiting for the next check.
    thread: OnceLock<Thread>,
    started: Instant,
}

impl DrivenRun {
    /// Opens the session's ports and starts the run. Calls `on_report` with a live report at each
    /// interval `every`, and with `None` once the outcome is available.
    ///
    /// # Errors
    /// As [`Session::open`] and [`squall::Opened::start`].
    pub fn start(
        session: Session,
        every: Duration,
        on_report: impl Fn(Option<&Arc<LiveReport>>) + Send + 'static,
    ) -> Result<Arc<Self>, Error> {
        let driven = Self::hold(session, every, on_report)?;
        driven.go(None);
        Ok(driven)
    }

    /// As [`DrivenRun::start`], but sends nothing before [`DrivenRun::go`].
    ///
    /// # Errors
    /// As [`DrivenRun::start`].
    pub fn hold(
        session: Session,
        every: Duration,
        on_report: impl Fn(Option<&Arc<LiveReport>>) + Send + 'static,
    ) -> Result<Arc<Self>, Error> {
        let held = session.open()?.hold()?;
        let driven = Arc::new(Self {
            held: Mutex::new(Some(held)),
            run: Mutex::new(None),
            sent_all: AtomicBool::new(false),
            latest: Mutex::new(None),
            recent: Mutex::new(Recent::default()),
            outcome: Mutex::new(None),
            over: Condvar::new(),
            stopped: AtomicBool::new(false),
            thread: OnceLock::new(),
            started: Instant::now(),
        });
        let this = driven.clone();
        let thread = std::thread::Builder::new()
            .name("squall-run".into())
            .spawn(move || this.drive_to_end(every, &on_report))
            .map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))?;
        _ = driven.thread.set(thread.thread().clone());
        Ok(driven)
    }

    /// Starts a held run at time `at` on its session's clock (`None`: at once). Returns whether it
    /// was held.
    pub fn go(&self, at: Option<Nanos>) -> bool {
        self.begin(|held| held.go(at))
    }

    fn begin(&self, how: impl FnOnce(Held) -> Run) -> bool {
        let mut held = lock(&self.held);
        let Some(waiting) = held.take() else { return false };
        *lock(&self.run) = Some(how(waiting));
        drop(held);
        self.wake();
        true
    }

    /// As [`DrivenRun::go`], but fails if `at` has passed already.
    ///
    /// # Errors
    /// The reason why the run does not start.
    pub fn go_at(&self, at: Nanos) -> Result<(), NotStarted> {
        let held = lock(&self.held);
        let Some(waiting) = &*held else { return Err(NotStarted::NotReady) };
        let (due, now) = (waiting.local(at), squall_port::monotonic());
        if due <= now {
            return Err(NotStarted::TooLate(now - due));
        }
        drop(held);
        if self.go(Some(at)) { Ok(()) } else { Err(NotStarted::NotReady) }
    }

    /// Whether the run waits for [`DrivenRun::go`].
    pub fn is_held(&self) -> bool {
        lock(&self.held).is_some()
    }

    /// Whether all frames have been sent. A node may still receive frames from other nodes after
    /// that.
    pub fn sent_all(&self) -> bool {
        self.sent_all.load(Ordering::Acquire)
    }

    /// Sets the common clock of all nodes.
    ///
    /// # Errors
    /// If the run is over.
    pub fn set_clock(&self, clock: NodeClock) -> Result<(), Error> {
        if let Some(held) = lock(&self.held).as_mut() {
            held.set_clock(clock);
            return Ok(());
        }
        self.with(|run| {
            run.set_clock(clock);
            Ok(())
        })
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// A panic on this thread becomes an error that ends the run, because callers would otherwise
    /// wait for the outcome forever.
    fn drive_to_end(&self, every: Duration, on_report: &dyn Fn(Option<&Arc<LiveReport>>)) {
        let driven = catch_unwind(AssertUnwindSafe(|| self.drive(every, on_report)));
        if let Err(panic) = driven {
            // Close the ports before callers can learn that the run has ended.
            let run = lock(&self.run).take();
            _ = catch_unwind(AssertUnwindSafe(|| drop(run)));
            let error = Error::Environment(format!(
                "this is a defect in Squall, please report it: {}",
                panic_message(&*panic)
            ));
            lock(&self.outcome).get_or_insert(Err(Arc::new(error)));
        }
        self.over.notify_all();
        on_report(None);
    }

    fn drive(&self, every: Duration, on_report: &dyn Fn(Option<&Arc<LiveReport>>)) {
        while self.is_held() {
            std::thread::park_timeout(POLL_INTERVAL);
        }
        let mut due = Instant::now() + every;
        let mut reading = Reading::default();
        let run = loop {
            std::thread::park_timeout(
                POLL_INTERVAL.min(due.saturating_duration_since(Instant::now())),
            );
            let mut run = lock(&self.run);
            // The engine reports a run without sources as done at once, so use other criteria for a
            // run that only receives.
            let done = run.as_mut().is_none_or(|run| match run.listening() {
                true => {
                    self.stopped.load(Ordering::Acquire) || is_complete(run) || reading.is_over(run)
                }
                false => run.wait(Duration::ZERO),
            });
            if done {
                break run.take();
            }
            let sent = run.as_ref().is_some_and(|run| run.sent_all() && !run.listening());
            self.sent_all.store(sent, Ordering::Release);
            if Instant::now() >= due {
                let latest = run.as_mut().map(live_report);
                drop(run);
                latest.iter().for_each(|latest| reading.look(&latest.report));
                *lock(&self.latest) = latest.clone();
                on_report(latest.as_ref());
                if lock(&self.recent).newest.is_some() {
                    // A caller reads rates, so take totals now. Its next query then gets the rates
                    // since this report, and not since its own last query.
                    self.totals(every / 2);
                }
                due = Instant::now() + every;
            }
        };
        if let Some(mut run) = run {
            // The rest of the last period becomes a sample, too.
            *lock(&self.latest) = Some(live_report(&mut run));
            // Queries until the outcome is set return these totals.
            lock(&self.recent).put(Arc::new(run.totals()));
            run.stop();
            let outcome = run.finish_with_totals().map(|(report, totals)| {
                lock(&self.recent).put(Arc::new(totals));
                Arc::new(report)
            });
            *lock(&self.outcome) = Some(outcome.map_err(Arc::new));
        }
    }

    /// The latest report; `None` before the first one.
    pub fn latest(&self) -> Option<Arc<LiveReport>> {
        lock(&self.latest).clone()
    }

    /// Totals that are at most `age` old while the run is live, and totals from about a second
    /// earlier, for rates. Callers that query within `age` of each other get the same totals, so
    /// that the workers are interrupted only once.
    pub fn totals(&self, age: Duration) -> (Arc<Totals>, Arc<Totals>) {
        let mut recent = lock(&self.recent);
        if recent.newest.as_ref().is_none_or(|totals| totals.taken.elapsed() >= age)
            && let Some(run) = lock(&self.run).as_ref()
        {
            recent.put(Arc::new(run.totals()));
        }
        let nothing = || Arc::new(Totals::nothing(self.started));
        let newest = recent.newest.clone().unwrap_or_else(nothing);
        (newest, recent.earlier.front().cloned().unwrap_or_else(nothing))
    }

    /// The outcome; `None` before the run has ended.
    pub fn outcome(&self) -> Option<Result<Arc<Report>, Arc<Error>>> {
        lock(&self.outcome).clone()
    }

    /// Waits for the outcome for at most `limit`.
    pub fn wait(&self, limit: Duration) -> Option<Result<Arc<Report>, Arc<Error>>> {
        let outcome = lock(&self.outcome);
        let waited = self.over.wait_timeout_while(outcome, limit, |outcome| outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Stops sending. The outcome follows once frames in flight have been received.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // A run that has not started gives an empty report.
        self.begin(Held::give_up);
        if let Some(run) = lock(&self.run).as_ref() {
            run.stop();
        }
        self.wake();
    }

    /// Whether the run no longer accepts changes: all frames have been sent, and the outcome is
    /// available or will be soon.
    pub fn is_over(&self) -> bool {
        !self.is_held() && lock(&self.run).is_none()
    }

    /// Calls `what` with the live run.
    ///
    /// # Errors
    /// If the run is over, or `what` fails.
    pub fn with<T>(&self, what: impl FnOnce(&mut Run) -> Result<T, Error>) -> Result<T, Error> {
        match lock(&self.run).as_mut() {
            Some(run) => what(run),
            None if self.is_held() => {
                Err(Error::Usage("the run is held\n  try again when it has begun".into()))
            }
            None => Err(Error::Usage("the run is over\n  try a new run".into())),
        }
    }
}

/// Whether a run that only receives is complete. Such a run has no last frame of its own to wait
/// for.
fn is_complete(run: &Run) -> bool {
    let lasts = run.profile().stop.duration;
    let over = lasts.is_some_and(|lasts| run.elapsed_s() >= lasts.as_secs_f64());
    if over {
        run.stop_because(EndedBy::Duration);
    }
    over || run.captured() || run.receives_nothing_more() || run.aborted()
}

/// Detects the end of the files if a run only reads files: no port receives frames any longer.
#[derive(Default)]
struct Reading {
    received: u64,
    /// Number of consecutive reports without a received frame.
    quiet: u32,
}

impl Reading {
    fn look(&mut self, report: &Report) {
        let received = report.ports.iter().map(|port| port.rx.packets).sum();
        self.quiet = if received == self.received { self.quiet + 1 } else { 0 };
        self.received = received;
    }

    fn is_over(&self, run: &Run) -> bool {
        let over = self.quiet >= QUIET && run.virtual_time();
        if over {
            run.stop_because(EndedBy::Done);
        }
        over
    }
}

/// Minimum period over which rates are computed.
const WINDOW: Duration = Duration::from_secs(1);

/// The latest totals, and earlier ones for rates.
#[derive(Default)]
struct Recent {
    newest: Option<Arc<Totals>>,
    /// Oldest first. The first one is at least [`WINDOW`] older than the newest, if there are any
    /// that old.
    earlier: VecDeque<Arc<Totals>>,
}

impl Recent {
    fn put(&mut self, totals: Arc<Totals>) {
        let older = |other: &Arc<Totals>| totals.taken.saturating_duration_since(other.taken);
        if let Some(newest) = self.newest.take()
            && self.earlier.back().is_none_or(|last| newest.taken - last.taken >= WINDOW / 5)
        {
            self.earlier.push_back(newest);
        }
        while self.earlier.get(1).is_some_and(|second| older(second) >= WINDOW) {
            self.earlier.pop_front();
        }
        self.newest = Some(totals);
    }
}

fn live_report(run: &mut Run) -> Arc<LiveReport> {
    let (sample, report) = run.sample();
    Arc::new(LiveReport { sample, report, taken: Instant::now() })
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}

/// Locks, and ignores poisoning: each change under these locks is a single assignment, so a panic
/// leaves no partial state.
pub fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall::{Format, Profile};

    fn session(stop: &str) -> Session {
        let text = format!(
            "{stop}\n[ports]\nA = \"null:\"\n[[stream]]\nname = \"web\"\npacket = \
             \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n"
        );
        Session::new(Profile::parse(&text, "test", Format::Toml).expect("a profile"))
    }

    #[test]
    fn a_run_without_end_goes_on_until_it_is_stopped_and_reports_meanwhile() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let on_report = move |latest: Option<&Arc<LiveReport>>| {
            sender.send(latest.is_some()).expect("somebody listens")
        };
        let driven =
            DrivenRun::start(session(""), Duration::from_millis(20), on_report).expect("it starts");
        assert!(receiver.recv().expect("a live report"));
        assert!(driven.latest().is_some() && driven.outcome().is_none());
        driven.with(|run| run.pause(Some("web"))).expect("it is there");
        driven.with(|run| run.pause(Some("wed"))).expect_err("no such stream");
        driven.with(|run| run.resume(None)).expect("it is there");
        driven.stop();
        let report = driven.wait(Duration::from_secs(20)).expect("it ends").expect("it ends well");
        assert_eq!(report.ports[0].tx.packets, report.streams[0].tx_packets);
        assert!(
            driven
                .with(|run| run.pause(None))
                .expect_err("it is over")
                .to_string()
                .contains("over")
        );
    }

    #[test]
    fn a_run_that_comes_to_its_end_is_not_interrupted() {
        let limited = session("duration = \"50 ms\"\n");
        let driven =
            DrivenRun::start(limited, Duration::from_millis(20), |_| ()).expect("it starts");
        let report = driven.wait(Duration::from_secs(20)).expect("it ends").expect("it ends well");
        assert!(!report.cut_short, "{:?}", report.verdict);
        assert_eq!(report.verdict.ended_by, EndedBy::Duration);
    }

    #[test]
    fn a_run_that_only_listens_ends_with_its_duration_or_with_the_files_that_it_reads() {
        let mut session = Session::new(Profile::listening([("A", "loop:4712")]));
        session.profile.stop.duration = Some(Nanos(100_000_000));
        let driven = DrivenRun::start(session, Duration::from_secs(60), |_| ()).expect("it starts");
        let report = driven.wait(Duration::from_secs(20)).expect("it ends").expect("it ends well");
        assert_eq!((report.verdict.ended_by, report.cut_short), (EndedBy::Duration, false));
        let session = Session::new(Profile::listening([("A", "loop:4713,virtual")]));
        let driven =
            DrivenRun::start(session, Duration::from_millis(20), |_| ()).expect("it starts");
        let report = driven.wait(Duration::from_secs(20)).expect("it ends").expect("it ends well");
        assert_eq!(report.verdict.ended_by, EndedBy::Done);
    }

    #[test]
    fn a_run_that_only_listens_goes_on_until_it_is_stopped() {
        let session = Session::new(Profile::listening([("A", "loop:4711")]));
        let (sender, receiver) = std::sync::mpsc::channel();
        let on_report = move |latest: Option<&Arc<LiveReport>>| _ = sender.send(latest.is_some());
        let driven =
            DrivenRun::start(session, Duration::from_millis(20), on_report).expect("it starts");
        // The thread checks several times for the end during this loop.
        for _ in 0..10 {
            assert!(receiver.recv().expect("a live report"));
        }
        assert!(driven.outcome().is_none());
        driven.stop();
        driven.wait(Duration::from_secs(20)).expect("it ends").expect("it ends well");
    }

    #[test]
    fn a_defect_on_the_thread_of_a_run_is_its_outcome_and_not_a_run_without_end() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let on_report = move |latest: Option<&Arc<LiveReport>>| match latest {
            Some(_) => panic!("a defect on purpose: {}", 7),
            None => sender.send(()).expect("somebody listens"),
        };
        let driven =
            DrivenRun::start(session(""), Duration::from_millis(20), on_report).expect("it starts");
        let error =
            driven.wait(Duration::from_secs(20)).expect("it ends").expect_err("it ends badly");
        assert!(error.to_string().contains("a defect on purpose: 7"), "{error}");
        receiver.recv_timeout(Duration::from_secs(20)).expect("the end is reported");
        driven.with(|run| run.pause(None)).expect_err("it is over");
    }

    #[test]
    fn rates_are_scaled_from_what_they_are() {
        let driven =
            DrivenRun::start(session(""), Duration::from_secs(3600), |_| {}).expect("it starts");
        let asked = || {
            driven
                .with(|run| Ok(run.sample().1.streams[0].asked_pps))
                .expect("it goes on")
                .expect("a rate")
        };
        driven.with(|run| run.multiply("3".parse().expect("a factor"))).expect("it can");
        driven.with(|run| run.scale(11, 10)).expect("it can");
        assert!((asked() - 3300.0).abs() < 1e-6, "{}", asked());
        // More steps than the exact fraction can represent.
        for _ in 0..40 {
            driven.with(|run| run.scale(11, 10)).expect("it can");
        }
        for _ in 0..40 {
            driven.with(|run| run.scale(10, 11)).expect("it can");
        }
        assert!((asked() - 3300.0).abs() < 1.0, "{}", asked());
        driven.stop();
        driven.wait(Duration::from_secs(20)).expect("it ends").expect("it ends well");
    }

    #[test]
    fn totals_have_what_was_counted_and_the_last_ones_have_all() {
        let driven =
            DrivenRun::start(session(""), Duration::from_secs(3600), |_| {}).expect("it starts");
        let mut sent = 0;
        while sent < 20 {
            let (now, then) = driven.totals(Duration::ZERO);
            assert!(now.streams.is_empty() || now.streams[0].tx_packets >= sent, "counters grow");
            assert!(then.taken <= now.taken);
            sent = now.streams.first().map_or(0, |stream| stream.tx_packets);
        }
        let (now, _) = driven.totals(Duration::from_secs(3600));
        assert_eq!(
            now.streams[0].tx_packets, sent,
            "totals within the allowed age are returned again"
        );
        driven.stop();
        let report = driven.wait(Duration::from_secs(20)).expect("it ends").expect("it ends well");
        let (last, _) = driven.totals(Duration::ZERO);
        assert_eq!(last.streams[0].tx_packets, report.streams[0].tx_packets);
        assert_eq!(
            (last.ports[0].tx_packets, last.streams[0].name.as_str()),
            (report.ports[0].tx.packets, "web")
        );
    }

    #[test]
    fn a_run_with_an_end_ends_by_itself() {
        let session = session("packets = 5");
        let driven = DrivenRun::start(session, Duration::from_secs(1), |_| {}).expect("it starts");
        let report = driven.wait(Duration::from_secs(20)).expect("it ends").expect("it ends well");
        assert_eq!(report.ports[0].tx.packets, 5);
    }
}
