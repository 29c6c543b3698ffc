//! Runs the trials of the standard tests. Each trial is a run.
//!
//! A [`Test`] consists of a method, a profile and the [`Place`] where it runs: this process, or the
//! nodes of a cluster. It returns the outcome of the method. A [`Comparison`] compares two profiles
//! or devices. The streams of a trial are derived from those of the profile, and its measurements
//! from the reports of its run.
//!
//! [`squall_method`] decides on the next trial and on the end of a test. This crate has no command
//! line. It communicates with the controller of the nodes only by lines of JSON.
#![forbid(unsafe_code)]

mod between;
mod comparison;
mod connections;
mod here;
mod journal;
mod measured;
mod nodes;
mod path;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Map, json};
use squall_method::{
    Action, Bench, Bounds, Estimate, Lane, MaxLoad, Measured, Method, MethodError, Outcome, Path,
    RecordedTrial, RetryPolicy, Rig, RigLane, Runner, Second, Template, Trial, Watch,
};
use squall_options::{RunOptions, Time};
use squall_profile::{Mode, PacketSource, Profile, SizeLaw, Stream};
use squall_units::{Nanos, Rate, RateUnit};

pub use between::Between;
pub use comparison::{Comparison, compare_results};
use connections::loaded;
use measured::measured;
pub use nodes::Nodes;

use squall::{Error, Session, report::Report};

/// Interval at which a running trial checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Additional duration of a trial on three nodes (docs/guide/cluster.md): opening ports, agreeing
/// on a start, and collecting reports.
const NODES_S: f64 = 1.0;

/// Where trials run.
pub enum Place<'a> {
    /// This process.
    Here,
    /// The nodes of a cluster.
    Nodes(&'a mut Nodes),
}

/// Parameters of a run.
struct Job<'a> {
    label: &'a str,
    profile: Profile,
    options: RunOptions,
    action: Option<&'a Action>,
    /// Time until which frames of streams are counted per second; 0: no such counts.
    seconds_s: f64,
    /// Duration, seconds, if known.
    lasts_s: Option<f64>,
}

/// Result of a completed run.
#[derive(Default)]
struct RunResult {
    /// Reports by node name. The name of this machine is empty.
    reports: Vec<(String, Report)>,
    /// Nodes whose report is missing or incomplete, with the reason.
    lost: BTreeMap<String, String>,
    /// Per-second counts by stream.
    seconds: BTreeMap<String, Vec<Second>>,
}

impl Place<'_> {
    /// Runs a trial; `None` if it was stopped.
    fn run(&mut self, job: Job<'_>, stop: &dyn Fn() -> bool) -> Result<Option<RunResult>, Error> {
        match self {
            Self::Here => here::run(job, stop),
            Self::Nodes(nodes) => nodes.run(job, stop),
        }
    }

    /// Moves the ports of the profile to nodes if trials run there.
    fn placed(&self, mut profile: Profile) -> Result<Profile, Error> {
        if let Self::Nodes(nodes) = self {
            nodes.place(&mut profile)?;
        }
        Ok(profile)
    }

    /// Nodes and addresses of the ports, for the journal and the result; empty on this machine.
    fn description(&self) -> String {
        match self {
            Self::Here => String::new(),
            Self::Nodes(nodes) => nodes.places_text(),
        }
    }
}

/// A standard test with the streams of a profile.
#[derive(Clone, Debug)]
pub struct Test {
    pub method: Method,
    pub profile: Profile,
    /// Options of each trial, except that the method determines its end.
    pub options: RunOptions,
    /// Highest rate of a port, in frames or line bits per second; `None`: the link speed.
    pub most: Option<Rate>,
    pub retry: RetryPolicy,
    /// File to which completed trials are appended. Trials of the same test that it already has are
    /// not repeated.
    pub journal: Option<PathBuf>,
    /// Command that repeats the test, for the outcome.
    pub command: String,
}

impl Test {
    fn trials<'a>(
        &self,
        place: Place<'a>,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Trials<'a>, Error> {
        let profile = &self.profile;
        let lacks = |what: &str, hint: &str| {
            Err(Error::Usage(format!("{}: there {what} to test with\n  {hint}", profile.origin)))
        };
        if self.method.wants_flows() && profile.flows.is_none() {
            return lacks(
                "are no flows",
                "add [flows], a [[pool]] of clients and a [[template]], or leave out the profile \
                 and try --port A=eth1 --port B=eth2 --gateway IP --gateway2 IP",
            );
        }
        if self.method.wants_streams() && profile.streams.is_empty() {
            return lacks("is no stream", "add a [[stream]] for each direction");
        }
        Trials::new(profile.clone(), self.options.clone(), place, stop)
    }

    fn rig(&self, trials: &Trials<'_>) -> Result<Rig, Error> {
        // A method with a fixed list of rates ignores the limit: pass a rate above that of any link.
        let any = (!self.method.wants_rate()).then(|| Rate::pps(1_000_000_000_000));
        trials.rig(self.most.or(any))
    }

    /// Estimated duration on a device that forwards at most half of the offered load.
    ///
    /// # Errors
    /// Invalid settings, or a profile that no trial can send.
    pub fn estimate(&self) -> Result<Estimate, Error> {
        self.estimate_at(Place::Here)
    }

    /// The same as [`Test::estimate`], with trials at `place`.
    ///
    /// # Errors
    /// The same as of [`Test::estimate`].
    pub fn estimate_at(&self, place: Place<'_>) -> Result<Estimate, Error> {
        let never = || false;
        let more_s = match place {
            Place::Here => 0.0,
            Place::Nodes(_) => NODES_S,
        };
        let rig = self.rig(&self.trials(place, &never)?)?;
        let estimate = self.method.estimate(&rig, self.retry).map_err(error)?;
        let seconds = estimate.seconds + more_s * estimate.trials as f64;
        Ok(Estimate { seconds, ..estimate })
    }

    /// Runs the test; polls `stop` several times per second.
    ///
    /// ```
    /// use squall::{Format, Profile, RunOptions};
    /// use squall_method::{Method, RetryPolicy, NoWatch, rfc2544};
    /// use squall_trials::Test;
    ///
    /// // A device that carries 10,000 frames/s and holds 50, in virtual time.
    /// let text = r#"
    ///     ports.A = "loop:doc-test,virtual,drain=10kpps,buffer=50"
    ///     [[stream]]
    ///     name = "A to A"
    ///     packet = "eth/ipv4/udp"
    ///     rate = 1
    /// "#;
    /// let settings = rfc2544::Settings {
    ///     tests: vec![rfc2544::Test::Throughput],
    ///     frame_sizes: vec![64],
    ///     trial_s: 1.0,
    ///     ..Default::default()
    /// };
    /// let test = Test {
    ///     method: Method::Rfc2544(settings),
    ///     profile: Profile::parse(text, "example", Format::Toml)?,
    ///     options: RunOptions::default(),
    ///     most: Some("100kpps".parse()?),
    ///     retry: RetryPolicy::default(),
    ///     journal: None,
    ///     command: String::new(),
    /// };
    /// let outcome = test.run(&mut NoWatch, &|| false)?;
    /// let throughput = outcome.figure("throughput/64").unwrap().value;
    /// assert!(throughput <= 10_000.0 && throughput > 9_950.0, "{throughput}");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Invalid settings, ports that do not open, or a journal of another test.
    pub fn run(&self, watch: &mut dyn Watch, stop: &dyn Fn() -> bool) -> Result<Outcome, Error> {
        self.run_at(Place::Here, watch, stop)
    }

    /// The same as [`Test::run`], with trials at `place`.
    ///
    /// # Errors
    /// The same as of [`Test::run`], or a node that is no longer reachable.
    pub fn run_at(
        &self,
        place: Place<'_>,
        watch: &mut dyn Watch,
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, Error> {
        let began = StartTime::now();
        let places = place.description();
        let mut runner = self.trials(place, stop)?;
        let rig = self.rig(&runner)?;
        let profile = self.profile.to_toml();
        let (journal, known) = match &self.journal {
            Some(path) => {
                let head = journal::Head::new(&self.method, &rig, &profile, &places);
                let (journal, known) = journal::Journal::open(path, &head)?;
                (Some(journal), known)
            }
            None => (None, Vec::new()),
        };
        let mut watch = Journaled { journal, watch, failed: None };
        let mut bench = Bench::new(&mut runner, &mut watch, self.retry).resume(known);
        let done = self.method.run(&rig, &mut bench);
        if let Some(error) = watch.failed {
            return Err(error);
        }
        let mut outcome = began.complete(done.map_err(error)?, profile, &self.command);
        add_places(&mut outcome, places);
        Ok(outcome)
    }

    /// The outcome of an incomplete test, with the trials up to now.
    pub fn partial_outcome(&self, began: &StartTime, trials: Vec<RecordedTrial>) -> Outcome {
        began.complete(self.method.partial_outcome(trials), self.profile.to_toml(), &self.command)
    }
}

/// Start time of a test.
pub struct StartTime(SystemTime, Instant);

impl StartTime {
    pub fn now() -> Self {
        Self(SystemTime::now(), Instant::now())
    }

    /// Adds host, version, and start and end time to an outcome.
    fn complete(&self, outcome: Outcome, profile: String, command: &str) -> Outcome {
        let host = squall_machine::host().facts().map(|(name, value)| (name.to_owned(), value));
        // Set by `squall lab exec` (`squall_port_linux::lab::DEVICE_VARIABLE`).
        let device = std::env::var("SQUALL_LAB_DEVICE").ok();
        let device = device.map(|device| ("device of the lab".to_owned(), device));
        let host: BTreeMap<_, _> = host.into_iter().chain(device).collect();
        Outcome {
            profile,
            squall_version: env!("CARGO_PKG_VERSION").into(),
            command: command.into(),
            started: humantime::format_rfc3339_seconds(self.0).to_string(),
            ended: humantime::format_rfc3339_seconds(self.0 + self.1.elapsed()).to_string(),
            duration_s: self.1.elapsed().as_secs_f64(),
            host,
            ..outcome
        }
    }
}

/// Adds the ports of nodes to an outcome.
fn add_places(outcome: &mut Outcome, places: String) {
    if !places.is_empty() {
        outcome.host.insert("ports of nodes".into(), places);
    }
}

/// Appends each completed trial to the journal.
struct Journaled<'a> {
    journal: Option<journal::Journal>,
    watch: &'a mut dyn Watch,
    failed: Option<Error>,
}

impl Watch for Journaled<'_> {
    fn trial_started(&mut self, trial: &Trial, number: usize) {
        self.watch.trial_started(trial, number);
    }

    fn trial_known(&mut self, recorded: &RecordedTrial) {
        self.watch.trial_known(recorded);
    }

    fn search_bounds(&mut self, bounds: Option<Bounds>) {
        self.watch.search_bounds(bounds);
    }

    fn trial_ended(&mut self, recorded: &RecordedTrial) -> bool {
        let written = self.journal.as_mut().map_or(Ok(()), |journal| journal.add(recorded));
        let goes_on = self.watch.trial_ended(recorded);
        self.failed = written.err();
        goes_on && self.failed.is_none()
    }
}

fn error(halt: MethodError) -> Error {
    match halt {
        MethodError::Usage(text) => Error::Usage(text),
        MethodError::Stopped => Error::Usage("stopped".into()),
        MethodError::Environment(text) => Error::Environment(text),
    }
}

/// Runs trials with the streams of a profile.
pub struct Trials<'a> {
    profile: Profile,
    options: RunOptions,
    place: Place<'a>,
    /// Returns whether to stop now.
    stop: &'a dyn Fn() -> bool,
    virtual_time: bool,
    /// Link speed of each port, bits per second; `None`: unknown.
    speeds: Vec<Option<u64>>,
    /// Whether an earlier trial has started.
    began: bool,
}

impl<'a> Trials<'a> {
    /// `options` apply to each trial, except that the method determines its end.
    ///
    /// # Errors
    /// Ports that cannot be used for trials.
    pub fn new(
        profile: Profile,
        options: RunOptions,
        place: Place<'a>,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Self, Error> {
        let profile = place.placed(profile)?;
        // CPUs and files in the options are those of nodes, so the profile is checked here without
        // them.
        let options_here = match place {
            Place::Here => options.clone(),
            Place::Nodes(_) => RunOptions::default(),
        };
        let planned = Session::new(profile.clone()).with(options_here)?.check_only()?;
        let speeds = match &place {
            Place::Here => planned.limits.iter().map(|limit| limit.speed_bps).collect(),
            Place::Nodes(nodes) => nodes.speeds(&profile),
        };
        Ok(Self {
            profile,
            options,
            place,
            stop,
            virtual_time: planned.virtual_time,
            speeds,
            began: false,
        })
    }

    /// The streams in the form that methods use. `most`: highest rate of a port; `None`: the link
    /// speed.
    ///
    /// # Errors
    /// A link whose speed is unknown.
    pub fn rig(&self, most: Option<Rate>) -> Result<Rig, Error> {
        let most = match most {
            Some(rate) => most_load(rate)?,
            None => MaxLoad::BpsL1(self.link_bps()?),
        };
        let weights: Vec<f64> = self.profile.streams.iter().map(weight).collect();
        let on_port = |port: usize| {
            let streams = self.profile.streams.iter().zip(&weights);
            streams.filter(|(stream, _)| stream.port == port).map(|(_, w)| w).sum::<f64>()
        };
        let lane = |(stream, weight): (&Stream, &f64)| RigLane {
            stream: stream.name.clone(),
            port: self.profile.ports[stream.port].name.clone(),
            share: weight / on_port(stream.port),
            ipv6: is_ipv6(stream),
            longer: 0,
        };
        let lanes = self.profile.streams.iter().zip(&weights).map(lane).collect();
        let ports = self.profile.ports.iter().map(|port| port.name.clone()).collect();
        let name = |port: usize| self.profile.ports[port].name.clone();
        let flows = self.profile.flows.as_ref();
        let clients = flows.and_then(|flows| flows.clients).map(name);
        let servers = flows.and_then(|flows| flows.servers).map(name);
        Ok(Rig { ports, lanes, clients, servers, most, link_bps: self.link_bps().ok() })
    }

    /// Speed of the slowest link on which a stream is sent, bits per second.
    fn link_bps(&self) -> Result<f64, Error> {
        let sending = self.profile.streams.iter().map(|stream| stream.port);
        let speed = |port: usize| {
            self.speeds[port].ok_or_else(|| {
                let port = &self.profile.ports[port];
                let asked = match self.place {
                    Place::Here => "",
                    Place::Nodes(_) => " (--dry-run does not ask nodes)",
                };
                Error::Usage(format!(
                    "port {} ({}): the speed of the link is not known{asked}\n  say what to offer \
                     at most: --max-rate 1Gbps, or --max-rate 100kpps",
                    port.name, port.address
                ))
            })
        };
        sending.map(speed).try_fold(f64::INFINITY, |least, speed| Ok(least.min(speed? as f64)))
    }

    /// The profile of a trial.
    fn of(&self, trial: &Trial) -> Result<Profile, MethodError> {
        let mut profile = self.profile.clone();
        profile.streams = trial
            .lanes
            .iter()
            .map(|lane| self.stream(lane, trial.duration_s))
            .collect::<Result<_, _>>()?;
        profile.flows = match (&trial.flows, &self.profile.flows) {
            (Some(load), Some(flows)) => Some(loaded(flows, load, trial.duration_s)?),
            (Some(_), None) => return Err(MethodError::Usage("the profile has no flows".into())),
            (None, _) => None,
        };
        profile.replays.clear();
        profile.attacks.clear();
        // Lanes with a number of frames end by themselves. A duration could cut off their last
        // frame.
        let counted = trial.flows.is_none() && trial.lanes.iter().all(|lane| lane.frames.is_some());
        profile.stop = squall_profile::Stop {
            duration: (!counted).then(|| Nanos::from_secs_f64(trial.duration_s)),
            ..Default::default()
        };
        Ok(profile)
    }

    fn stream(&self, lane: &Lane, duration_s: f64) -> Result<Stream, MethodError> {
        let stream = match &lane.template {
            Some(template) => self.made(template)?,
            None => {
                let known = self.profile.streams.iter().find(|stream| stream.name == lane.stream);
                let none = || MethodError::Usage(format!("there is no stream {:?}", lane.stream));
                known.cloned().ok_or_else(none)?
            }
        };
        let rate = exact(lane.rate_fps).ok_or_else(|| {
            MethodError::Usage(format!(
                "stream {:?}: {} frames/s cannot be sent",
                lane.stream, lane.rate_fps
            ))
        })?;
        let until = lane.duration_s.filter(|active| lane.start_s + active < duration_s);
        Ok(Stream {
            name: lane.name.clone(),
            size: lane.frame_size.map_or(stream.size, SizeLaw::Fixed),
            rate,
            stages: Vec::new(),
            mode: lane.frames.map_or(Mode::Continuous, Mode::Burst),
            start_delay: Nanos::from_secs_f64(lane.start_s),
            duration: until.map(Nanos::from_secs_f64),
            after: None,
            self_start: true,
            next: None,
            latency: lane.is_measured(),
            ..stream
        })
    }

    /// The stream that a method's template defines.
    fn made(&self, template: &Template) -> Result<Stream, MethodError> {
        let ports = self.profile.ports.iter().map(|port| (port.name.clone(), json!(port.address)));
        let stream = json!({
            "port": template.port,
            "packet": template.packet,
            "vary": template.vary,
            "rate": "1pps",
        });
        let profile = json!({"ports": Map::from_iter(ports), "stream": [stream]});
        let profile = Profile::from_value(&profile, "<method>");
        let mut streams = profile.map_err(|error| halt(error.into()))?.streams;
        streams.pop().ok_or_else(|| MethodError::Usage("a template is a stream".into()))
    }

    fn job<'t>(&self, trial: &'t Trial) -> Result<Job<'t>, MethodError> {
        let mut options = RunOptions { duration: None, packets: None, ..self.options.clone() };
        if self.began {
            // Each trial overwrites the same files.
            options.force = Some(true);
        }
        // RFC 2544 §23 requires a wait of 2 s for frames in flight.
        options.linger.get_or_insert(Time::from_secs(if self.virtual_time { 0 } else { 2 }));
        Ok(Job {
            label: &trial.label,
            profile: self.of(trial)?,
            options,
            action: trial.action.as_ref(),
            seconds_s: if trial.seconds { trial.duration_s } else { 0.0 },
            lasts_s: Some(trial.duration_s),
        })
    }
}

impl Runner for Trials<'_> {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let job = self.job(trial)?;
        self.began = true;
        match self.place.run(job, self.stop).map_err(halt)? {
            Some(ran) => measured(trial, ran).map_err(halt),
            None => Err(MethodError::Stopped),
        }
    }

    fn prove(&mut self, path: &Path) -> Result<(), MethodError> {
        let mut dead = None;
        for (part, wait) in path::ATTEMPTS {
            let trial = path.slower(part);
            let mut job = self.job(&trial)?;
            job.options.linger = Some(Time(wait));
            if let Some(flows) = &mut job.profile.flows {
                flows.drain = Some(wait);
            }
            self.began = true;
            let Some(ran) = self.place.run(job, self.stop).map_err(halt)? else {
                return Err(MethodError::Stopped);
            };
            dead = path::dead(path, &trial, &self.profile, ran).map_err(halt)?;
            if dead.is_none() {
                break;
            }
        }
        dead.map_or(Ok(()), |cannot| Err(MethodError::Environment(cannot.to_string())))
    }

    fn settle(&mut self, seconds: f64) -> Result<(), MethodError> {
        let seconds = if self.virtual_time { 0.0 } else { seconds };
        if settle(seconds, self.stop) { Ok(()) } else { Err(MethodError::Stopped) }
    }
}

/// Waits between trials. Returns `false` if the test was stopped.
fn settle(seconds: f64, stop: &dyn Fn() -> bool) -> bool {
    let (began, all) = (Instant::now(), Duration::try_from_secs_f64(seconds).unwrap_or_default());
    while let left = all.saturating_sub(began.elapsed())
        && !left.is_zero()
    {
        if stop() {
            return false;
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
    true
}

fn halt(error: Error) -> MethodError {
    match error {
        Error::Environment(_) | Error::Engine(_) => MethodError::Environment(error.to_string()),
        _ => MethodError::Usage(error.to_string()),
    }
}

/// Share of a stream in the load of its port, relative to the other streams.
fn weight(stream: &Stream) -> f64 {
    let value = stream.rate.value();
    if value.is_finite() && value > 0.0 { value } else { 1.0 }
}

/// Whether the outermost IP header is IPv6. `false` for frames of a capture, whose headers are not
/// known here.
fn is_ipv6(stream: &Stream) -> bool {
    let PacketSource::Layers(packet) = &stream.packet else { return false };
    let mut names = packet.layers.iter().map(|layer| layer.header.name);
    names.find(|name| name.starts_with("ipv")) == Some("ipv6")
}

fn most_load(rate: Rate) -> Result<MaxLoad, Error> {
    match rate.unit {
        RateUnit::Pps => Ok(MaxLoad::Fps(rate.value())),
        // The link speed counts line bits, so layer 2 rates are treated as line rates, too.
        RateUnit::BpsL1 | RateUnit::BpsL2 => Ok(MaxLoad::BpsL1(rate.value())),
        RateUnit::Percent | RateUnit::Max => Err(Error::Usage(format!(
            "--max-rate {rate}: expected bits or frames per second, such as 1Gbps or 100kpps"
        ))),
    }
}

/// Rounds down to a millionth of a frame per second, so the rate never exceeds `fps`.
fn exact(fps: f64) -> Option<Rate> {
    const DEN: f64 = 1e6;
    let num = (fps * DEN + 1e-3).floor();
    let fits = num >= 1.0 && num < u64::MAX as f64;
    fits.then(|| match fps.fract() == 0.0 {
        true => Rate::pps(fps as u64),
        false => Rate { num: num as u64, den: DEN as u64, unit: RateUnit::Pps },
    })
}

#[cfg(test)]
mod tests {
    use squall_profile::Format;

    use super::*;

    #[test]
    fn a_trial_that_asks_for_it_is_counted_second_by_second()
    -> Result<(), Box<dyn std::error::Error>> {
        let text = r#"
            ports.A = "loop:seconds,drain=50pps,buffer=5"
            [[stream]]
            name = "A to A"
            packet = "eth/ipv4/udp"
            rate = 1
        "#;
        let profile = Profile::parse(text, "test", Format::Toml)?;
        let never = || false;
        let mut trials = Trials::new(profile, RunOptions::default(), Place::Here, &never)?;
        let rig = trials.rig(Some("1000pps".parse()?))?;
        let trial = Trial { seconds: true, ..rig.trial("overload".into(), 64, 1.0, 3.2) };
        let measured = trials.run(&trial)?;
        let lane = &measured.lanes[0];
        assert!((2..=3).contains(&lane.seconds.len()), "{lane:?}");
        let sum = |of: &dyn Fn(&Second) -> u64| lane.seconds.iter().map(of).sum::<u64>();
        let (sent, received) = (sum(&|second| second.sent), sum(&|second| second.received));
        assert!(sent > 0 && sent <= lane.sent && received <= lane.received, "{lane:?}");
        assert!(received > 0 && received < sent, "{lane:?}");
        let trial = Trial { seconds: false, ..rig.trial("overload".into(), 64, 1.0, 0.1) };
        assert!(trials.run(&trial)?.lanes[0].seconds.is_empty());
        Ok(())
    }
}
