//! Trials of the standard tests, each a run of its own: what [`squall_method`] asks for, sent and
//! measured by this machine.

mod between;
mod comparison;
mod connections;
mod journal;
mod measured;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Map, json};
use squall_method::{
    Action, Bench, Bounds, Estimate, Halt, Lane, Measured, Method, MostLoad, Outcome, Patience,
    Recorded, Rig, RigLane, Runner, Second, Template, Trial, Watch,
};
use squall_options::{RunOptions, Time};
use squall_profile::{Format, Mode, PacketSource, Profile, SizeLaw, Stream};
use squall_units::{Nanos, Rate, RateUnit};

pub use between::Between;
pub use comparison::{Comparison, compare_results};
use connections::loaded;
use measured::measured;

use crate::{Error, Run, Session};

/// How often a running trial looks whether to stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// A standard test, on the streams of a profile.
#[derive(Clone, Debug)]
pub struct Test {
    pub method: Method,
    pub profile: Profile,
    /// Of each trial, but for its end.
    pub options: RunOptions,
    /// What a port sends at most, in frames or bits on the line; `None`: what its link carries.
    pub most: Option<Rate>,
    pub patience: Patience,
    /// Trials are written to this file as they end. If it has some of the same test, they are not
    /// run again.
    pub journal: Option<PathBuf>,
    /// For the outcome: what repeats it.
    pub command: String,
}

impl Test {
    fn trials<'a>(&self, stop: &'a dyn Fn() -> bool) -> Result<Trials<'a>, Error> {
        let profile = &self.profile;
        let lacks = |what: &str, hint: &str| {
            Err(Error::Usage(format!("{}: there {what} to test with\n  {hint}", profile.origin)))
        };
        if self.method.wants_flows() && profile.flows.is_none() {
            return lacks("are no flows", "add [flows], a [[pool]] of clients and a [[template]]");
        }
        if self.method.wants_streams() && profile.streams.is_empty() {
            return lacks("is no stream", "add a [[stream]] for each direction");
        }
        Trials::new(profile.clone(), self.options.clone(), stop)
    }

    fn rig(&self, trials: &Trials<'_>) -> Result<Rig, Error> {
        // Who says the rates needs no most: more than any link carries.
        let any = (!self.method.wants_rate()).then(|| Rate::pps(1_000_000_000_000));
        trials.rig(self.most.or(any))
    }

    /// How long it takes, if the device carries half of what is offered at most.
    ///
    /// # Errors
    /// Wrong settings, and a profile that no trial can send.
    pub fn estimate(&self) -> Result<Estimate, Error> {
        let never = || false;
        let rig = self.rig(&self.trials(&never)?)?;
        self.method.estimate(&rig, self.patience).map_err(error)
    }

    /// Runs it; `stop` is asked several times a second.
    ///
    /// ```
    /// use squall::{Format, Profile, RunOptions, method::{Method, Patience, Unwatched, rfc2544}, trials::Test};
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
    ///     patience: Patience::default(),
    ///     journal: None,
    ///     command: String::new(),
    /// };
    /// let outcome = test.run(&mut Unwatched, &|| false)?;
    /// let throughput = outcome.figure("throughput/64").unwrap().value;
    /// assert!(throughput <= 10_000.0 && throughput > 9_950.0, "{throughput}");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Wrong settings, ports that do not open, a journal of another test.
    pub fn run(&self, watch: &mut dyn Watch, stop: &dyn Fn() -> bool) -> Result<Outcome, Error> {
        let began = Began::now();
        let mut runner = self.trials(stop)?;
        let rig = self.rig(&runner)?;
        let profile = self.profile.to_toml();
        let (journal, known) = match &self.journal {
            Some(path) => {
                let head = journal::Head::new(&self.method, &rig, &profile);
                let (journal, known) = journal::Journal::open(path, &head)?;
                (Some(journal), known)
            }
            None => (None, Vec::new()),
        };
        let mut watch = Journaled { journal, watch, failed: None };
        let mut bench = Bench::new(&mut runner, &mut watch, self.patience).resume(known);
        let done = self.method.run(&rig, &mut bench);
        if let Some(error) = watch.failed {
            return Err(error);
        }
        Ok(began.told(done.map_err(error)?, profile, &self.command))
    }

    /// The outcome of a test that has not ended, with the trials so far.
    pub fn so_far(&self, began: &Began, trials: Vec<Recorded>) -> Outcome {
        began.told(self.method.so_far(trials), self.profile.to_toml(), &self.command)
    }
}

/// When something began.
pub struct Began(SystemTime, Instant);

impl Began {
    pub fn now() -> Self {
        Self(SystemTime::now(), Instant::now())
    }

    /// The outcome with its circumstances.
    fn told(&self, outcome: Outcome, profile: String, command: &str) -> Outcome {
        let host = crate::host().facts().map(|(name, value)| (name.to_owned(), value));
        Outcome {
            profile,
            squall_version: env!("CARGO_PKG_VERSION").into(),
            command: command.into(),
            started: humantime::format_rfc3339_seconds(self.0).to_string(),
            duration_s: self.1.elapsed().as_secs_f64(),
            host: host.into(),
            ..outcome
        }
    }
}

/// Writes down each trial as it ends.
struct Journaled<'a> {
    journal: Option<journal::Journal>,
    watch: &'a mut dyn Watch,
    failed: Option<Error>,
}

impl Watch for Journaled<'_> {
    fn begins(&mut self, trial: &Trial, number: usize) {
        self.watch.begins(trial, number);
    }

    fn known(&mut self, recorded: &Recorded) {
        self.watch.known(recorded);
    }

    fn searches(&mut self, bounds: Option<Bounds>) {
        self.watch.searches(bounds);
    }

    fn ended(&mut self, recorded: &Recorded) -> bool {
        let written = self.journal.as_mut().map_or(Ok(()), |journal| journal.add(recorded));
        let goes_on = self.watch.ended(recorded);
        self.failed = written.err();
        goes_on && self.failed.is_none()
    }
}

fn error(halt: Halt) -> Error {
    match halt {
        Halt::Usage(text) => Error::Usage(text),
        Halt::Stopped => Error::Usage("stopped".into()),
        Halt::Environment(text) => Error::Environment(text),
    }
}

/// Runs trials with the streams of a profile.
pub struct Trials<'a> {
    profile: Profile,
    options: RunOptions,
    /// Whether to stop now.
    stop: &'a dyn Fn() -> bool,
    virtual_time: bool,
    /// Of each port, bits per second; `None`: not known.
    speeds: Vec<Option<u64>>,
}

impl<'a> Trials<'a> {
    /// `options` apply to each trial, but for its end.
    ///
    /// # Errors
    /// Whose ports no trial can use.
    pub fn new(
        profile: Profile,
        options: RunOptions,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Self, Error> {
        let planned = Session::new(profile.clone()).with(options.clone())?.check_only()?;
        let speeds = planned.limits.iter().map(|limit| limit.speed_bps).collect();
        Ok(Self { profile, options, stop, virtual_time: planned.virtual_time, speeds })
    }

    /// The streams as a method uses them. `most`: what a port sends at most; `None`: what its link
    /// carries.
    ///
    /// # Errors
    /// A link of which nobody knows how much it carries.
    pub fn rig(&self, most: Option<Rate>) -> Result<Rig, Error> {
        let most = match most {
            Some(rate) => most_load(rate)?,
            None => MostLoad::BpsL1(self.link_bps()?),
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
        Ok(Rig { ports, lanes, most })
    }

    /// Bits per second of the slowest link that a stream leaves by.
    fn link_bps(&self) -> Result<f64, Error> {
        let sending = self.profile.streams.iter().map(|stream| stream.port);
        let speed = |port: usize| {
            self.speeds[port].ok_or_else(|| {
                let port = &self.profile.ports[port];
                Error::Usage(format!(
                    "port {} ({}): the speed of the link is not known\n  say what to offer at \
                     most: --max-rate 1Gbps, or --max-rate 100kpps",
                    port.name, port.address
                ))
            })
        };
        sending.map(speed).try_fold(f64::INFINITY, |least, speed| Ok(least.min(speed? as f64)))
    }

    /// The profile of one trial.
    fn of(&self, trial: &Trial) -> Result<Profile, Halt> {
        let mut profile = self.profile.clone();
        profile.streams = trial
            .lanes
            .iter()
            .map(|lane| self.stream(lane, trial.duration_s))
            .collect::<Result<_, _>>()?;
        profile.flows = match (&trial.flows, &self.profile.flows) {
            (Some(load), Some(flows)) => Some(loaded(flows, load, trial.duration_s)?),
            (Some(_), None) => return Err(Halt::Usage("the profile has no flows".into())),
            (None, _) => None,
        };
        profile.replays.clear();
        profile.attacks.clear();
        // Bursts end by themselves; their last frame is not to be cut off.
        let counted = trial.flows.is_none() && trial.lanes.iter().all(|lane| lane.frames.is_some());
        profile.stop = squall_profile::Stop {
            duration: (!counted).then(|| Nanos::from_secs_f64(trial.duration_s)),
            ..Default::default()
        };
        Ok(profile)
    }

    fn stream(&self, lane: &Lane, duration_s: f64) -> Result<Stream, Halt> {
        let stream = match &lane.template {
            Some(template) => self.made(template)?,
            None => {
                let known = self.profile.streams.iter().find(|stream| stream.name == lane.stream);
                let none = || Halt::Usage(format!("there is no stream {:?}", lane.stream));
                known.cloned().ok_or_else(none)?
            }
        };
        let rate = exact(lane.rate_fps).ok_or_else(|| {
            Halt::Usage(format!(
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
            latency: lane.template.as_ref().is_none_or(|template| !template.plain),
            ..stream
        })
    }

    /// A stream that is not in the profile.
    fn made(&self, template: &Template) -> Result<Stream, Halt> {
        let ports = self.profile.ports.iter().map(|port| (port.name.clone(), json!(port.address)));
        let stream = json!({
            "port": template.port,
            "packet": template.packet,
            "vary": template.vary,
            "rate": "1pps",
        });
        let text = json!({"ports": Map::from_iter(ports), "stream": [stream]}).to_string();
        let profile = Profile::parse(&text, "<method>", Format::Json);
        let mut streams = profile.map_err(|error| halt(error.into()))?.streams;
        streams.pop().ok_or_else(|| Halt::Usage("a template is a stream".into()))
    }

    fn session(&self, trial: &Trial) -> Result<Session, Halt> {
        let mut options = RunOptions { duration: None, packets: None, ..self.options.clone() };
        // RFC 2544 §23: 2 s for frames that are on their way.
        options.linger.get_or_insert(Time::from_secs(if self.virtual_time { 0 } else { 2 }));
        Session::new(self.of(trial)?).with(options).map_err(halt)
    }
}

impl Runner for Trials<'_> {
    fn run(&mut self, trial: &Trial) -> Result<Measured, Halt> {
        let mut run =
            self.session(trial)?.open().and_then(|opened| opened.start()).map_err(halt)?;
        let mut acting = Acting::of(trial.action.as_ref());
        let mut seconds = Seconds::of(trial);
        let done = self.watch(&mut run, &mut acting, &mut seconds);
        acting.end();
        let report = run.finish().map_err(halt)?;
        done.then(|| measured(trial, &report, &mut seconds)).ok_or(Halt::Stopped)
    }

    fn rest(&mut self, seconds: f64) -> Result<(), Halt> {
        let began = Instant::now();
        while !self.virtual_time && began.elapsed().as_secs_f64() < seconds {
            if (self.stop)() {
                return Err(Halt::Stopped);
            }
            let left = Duration::from_secs_f64(seconds).saturating_sub(began.elapsed());
            std::thread::sleep(left.min(PATIENCE));
        }
        Ok(())
    }
}

impl Trials<'_> {
    /// To the end of the run; `false`: it was stopped.
    fn watch(&self, run: &mut Run, acting: &mut Acting<'_>, seconds: &mut Seconds) -> bool {
        while !run.wait(PATIENCE) {
            acting.look(run.elapsed_s());
            seconds.look(run);
            if (self.stop)() {
                run.stop();
                return false;
            }
        }
        true
    }
}

/// What lanes sent and received in each second of a trial.
#[derive(Default)]
struct Seconds {
    /// When the second ends that runs now; none ends after the last.
    next_s: f64,
    last_s: f64,
    so_far: BTreeMap<String, [u64; 2]>,
    lanes: BTreeMap<String, Vec<Second>>,
}

impl Seconds {
    fn of(trial: &Trial) -> Self {
        let last_s = if trial.seconds { trial.duration_s + 0.5 } else { 0.0 };
        Self { next_s: 1.0, last_s, ..Self::default() }
    }

    fn look(&mut self, run: &mut Run) {
        let elapsed_s = run.elapsed_s();
        if elapsed_s < self.next_s || elapsed_s > self.last_s {
            return;
        }
        self.next_s += 1.0;
        for stream in &run.sample().1.streams {
            let received =
                stream.rx.as_ref().map_or(0, |rx| rx.packets.saturating_sub(rx.duplicates));
            let now = [stream.tx_packets, received];
            let then = self.so_far.insert(stream.name.clone(), now).unwrap_or_default();
            let [sent, received] = std::array::from_fn(|i| now[i].saturating_sub(then[i]));
            let lane = self.lanes.entry(stream.name.clone()).or_default();
            lane.push(Second { sent, received });
        }
    }
}

/// The action of a trial, before and while it runs.
struct Acting<'a> {
    waiting: Option<&'a Action>,
    running: Option<Child>,
}

impl<'a> Acting<'a> {
    fn of(action: Option<&'a Action>) -> Self {
        Self { waiting: action, running: None }
    }

    fn look(&mut self, elapsed_s: f64) {
        let Some(action) = self.waiting.take_if(|action| elapsed_s >= action.at_s) else { return };
        let mut command = Command::new("sh");
        command.args(["-c", &action.command]).stdin(Stdio::null()).stdout(Stdio::null());
        // A shell that does not start changes nothing in what is measured, and no reset is seen.
        self.running = command.spawn().ok();
    }

    /// Not waited for without end: a command that hangs is ended.
    fn end(self) {
        if let Some(mut child) = self.running
            && !matches!(child.try_wait(), Ok(Some(_)))
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn halt(error: Error) -> Halt {
    match error {
        Error::Environment(_) | Error::Engine(_) => Halt::Environment(error.to_string()),
        _ => Halt::Usage(error.to_string()),
    }
}

/// How much of its port a stream has beside the others.
fn weight(stream: &Stream) -> f64 {
    let value = stream.rate.value();
    if value.is_finite() && value > 0.0 { value } else { 1.0 }
}

/// Whether its outermost IP header is IPv6; of a capture's frames that is not known here.
fn is_ipv6(stream: &Stream) -> bool {
    let PacketSource::Layers(packet) = &stream.packet else { return false };
    let mut names = packet.layers.iter().map(|layer| layer.header.name);
    names.find(|name| name.starts_with("ipv")) == Some("ipv6")
}

fn most_load(rate: Rate) -> Result<MostLoad, Error> {
    match rate.unit {
        RateUnit::Pps => Ok(MostLoad::Fps(rate.value())),
        // What a link carries is said in bits on the line.
        RateUnit::BpsL1 | RateUnit::BpsL2 => Ok(MostLoad::BpsL1(rate.value())),
        RateUnit::Percent | RateUnit::Max => Err(Error::Usage(format!(
            "--max-rate {rate}: expected bits or frames per second, such as 1Gbps or 100kpps"
        ))),
    }
}

/// A millionth of a frame per second is exact enough, and never more than was asked for.
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
        let mut trials = Trials::new(profile, RunOptions::default(), &never)?;
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
