//! Trials of the standard tests, each a run of its own: what [`squall_method`] asks for, sent and
//! measured by this machine.

mod journal;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Map, json};
use squall_method::{
    Action, Bench, Delay, Estimate, FlowLoad, FlowsMeasured, Halt, Http, Lane, LaneMeasured,
    Measured, Method, MostLoad, Outcome, Patience, PortMeasured, Recorded, Rig, RigLane, Runner,
    Second, Status, Template, Trial, Verdict, Watch, ab,
};
use squall_options::{RunOptions, Time};
use squall_profile::{
    Arrival, Flows, Format, Mode, PacketSource, Profile, Ramp, Said, Says, SizeLaw, Stream,
    Template as FlowTemplate,
};
use squall_units::{Nanos, Rate, RateUnit};

use crate::{
    Error, Run, Session,
    report::{
        Distribution, PortReport, Reason, ReasonCode, Report, StreamReport, flows::FlowsReport,
    },
};

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
}

/// Two profiles, or two devices, compared by trials in turns.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub a: Profile,
    pub b: Profile,
    pub settings: ab::Settings,
    /// Of each trial.
    pub options: RunOptions,
    pub patience: Patience,
    pub command: String,
}

impl Comparison {
    /// Runs both in turns, each as often as there are pairs. A pair of which the generator did not
    /// keep to one trial, however often that was repeated, does not count.
    ///
    /// # Errors
    /// Wrong settings, a profile that never ends, ports that do not open; too few pairs that count.
    pub fn run(&self, watch: &mut dyn Watch, stop: &dyn Fn() -> bool) -> Result<Outcome, Error> {
        self.settings.check().map_err(error)?;
        let began = Began::now();
        let (mut a, mut b, mut trials) = (Vec::new(), Vec::new(), Vec::new());
        let mut bench = Pairs { comparison: self, watch, stop, trials: &mut trials };
        let (mut left_out, mut stopped) = (0, false);
        for pair in ab::sequence(self.settings.pairs).chunks(2) {
            let (first, second) = match (bench.trial(pair[0])?, bench.trial(pair[1])?) {
                (Turn::Kept(first), Turn::Kept(second)) => (first, second),
                (Turn::Stopped, _) | (_, Turn::Stopped) => {
                    stopped = true;
                    break;
                }
                _ => {
                    left_out += 1;
                    continue;
                }
            };
            let of_a = pair[0] == ab::Side::A;
            let (of_a, of_b) = if of_a { (first, second) } else { (second, first) };
            a.push(of_a);
            b.push(of_b);
        }
        let settings = ab::Settings { pairs: a.len(), ..self.settings.clone() };
        let text = format!("stopped after {} pairs", a.len());
        if stopped && a.len() < ab::fewest(settings.level) {
            let mut outcome = Outcome::new("ab", ab::TITLE, &settings);
            outcome.verdict = Verdict { status: Status::Stopped, text: vec![text] };
            outcome.trials = trials;
            return Ok(began.told(outcome, self.a.to_toml(), &self.command));
        }
        let mut outcome = ab::outcome(&settings, &a, &b, ab::metric).map_err(|halt| {
            Error::Environment(format!(
                "{halt}: the generator did not keep to one trial at least of {left_out} pairs"
            ))
        })?;
        if left_out > 0 {
            let text = format!("{left_out} pairs left out: the generator did not keep to a trial");
            outcome.notes.push(text);
        }
        if stopped {
            outcome.verdict.status = Status::Stopped;
            outcome.verdict.text.insert(0, text);
        }
        outcome.trials = trials;
        Ok(began.told(outcome, self.a.to_toml(), &self.command))
    }
}

/// How a trial of a comparison ended.
enum Turn {
    Kept(ab::Metrics),
    /// The generator did not keep to it, however often it was repeated.
    NotKept,
    Stopped,
}

/// The trials of a comparison.
struct Pairs<'a> {
    comparison: &'a Comparison,
    watch: &'a mut dyn Watch,
    stop: &'a dyn Fn() -> bool,
    trials: &'a mut Vec<Recorded>,
}

impl Pairs<'_> {
    fn trial(&mut self, side: ab::Side) -> Result<Turn, Error> {
        let (profile, name) = match side {
            ab::Side::A => (&self.comparison.a, "A"),
            ab::Side::B => (&self.comparison.b, "B"),
        };
        for attempt in 1..=self.comparison.patience.repeats + 1 {
            let trial = Trial { label: name.into(), ..Trial::default() };
            self.watch.begins(&trial, self.trials.len() + 1);
            let options = self.comparison.options.clone();
            let mut run = Session::new(profile.clone()).with(options)?.open()?.start()?;
            while !run.wait(PATIENCE) {
                if (self.stop)() {
                    run.stop();
                    run.finish()?;
                    return Ok(Turn::Stopped);
                }
            }
            let measured = measured_whole(&run.finish()?);
            let recorded = Recorded { trial, measured, attempt };
            self.trials.push(recorded.clone());
            if !self.watch.ended(&recorded) {
                return Ok(Turn::Stopped);
            }
            if recorded.measured.kept() {
                return Ok(Turn::Kept(ab::metrics(&recorded.measured)));
            }
        }
        Ok(Turn::NotKept)
    }
}

/// Two saved results of one method, trial by trial: those that have the same label, in their order.
///
/// # Errors
/// Wrong settings, or too few trials that both have.
pub fn compare_results(
    a: &Outcome,
    b: &Outcome,
    settings: &ab::Settings,
    command: &str,
) -> Result<Outcome, Error> {
    let began = Began::now();
    let kept = |outcome: &Outcome| -> Vec<Recorded> {
        outcome.trials.iter().filter(|recorded| recorded.measured.kept()).cloned().collect()
    };
    let (of_a, mut of_b) = (kept(a), kept(b));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for one in of_a {
        let same = |other: &Recorded| other.trial == one.trial;
        if let Some(at) = of_b.iter().position(same) {
            left.push(ab::metrics(&one.measured));
            right.push(ab::metrics(&of_b.remove(at).measured));
        }
    }
    let settings = ab::Settings { pairs: left.len(), ..settings.clone() };
    let outcome = ab::outcome(&settings, &left, &right, ab::metric).map_err(error)?;
    Ok(began.told(outcome, a.profile.clone(), command))
}

/// When something began.
struct Began(SystemTime, Instant);

impl Began {
    fn now() -> Self {
        Self(SystemTime::now(), Instant::now())
    }

    /// The outcome with its circumstances.
    fn told(&self, outcome: Outcome, profile: String, command: &str) -> Outcome {
        let host = crate::host();
        let facts = [
            ("Host", host.name),
            ("System", [host.os, host.kernel].join(" ")),
            ("Processor", format!("{} CPUs {}", host.cpus, host.cpu_model)),
        ];
        Outcome {
            profile,
            squall_version: env!("CARGO_PKG_VERSION").into(),
            command: command.into(),
            started: humantime::format_rfc3339_seconds(self.0).to_string(),
            duration_s: self.1.elapsed().as_secs_f64(),
            host: facts.map(|(name, value)| (name.into(), value)).into(),
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

/// The flows of one trial.
fn loaded(flows: &Flows, load: &FlowLoad, duration_s: f64) -> Result<Flows, Halt> {
    let mut flows = Flows { limit: load.limit, ..flows.clone() };
    if let Some(http) = load.http {
        flows.templates.truncate(1);
        flows.templates.iter_mut().for_each(|template| speaks_http(template, http));
    }
    let all: f64 = flows.templates.iter().map(|template| template.arrival.amount()).sum();
    for template in &mut flows.templates {
        let share = if all > 0.0 { template.arrival.amount() / all } else { 1.0 };
        let poisson = matches!(
            template.arrival,
            Arrival::Cps { poisson: true, .. } | Arrival::Weight { poisson: true, .. }
        );
        template.arrival = Arrival::Cps { cps: load.cps * share, poisson };
        template.stages.clear();
        (template.limit, template.duration, template.after) = Default::default();
        let settings = load.tcp.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        template.tcp.settings.extend(settings);
    }
    if flows.templates.is_empty() {
        return Err(Halt::Usage("the profile has no template of flows".into()));
    }
    flows.target = None;
    let hold_s = duration_s - load.ramp_up_s - load.ramp_down_s;
    flows.ramp = Ramp {
        up: Nanos::from_secs_f64(load.ramp_up_s),
        hold: Some(Nanos::from_secs_f64(hold_s.max(0.0))),
        down: Nanos::from_secs_f64(load.ramp_down_s),
    };
    Ok(flows)
}

/// The same clients and servers with HTTP between them.
fn speaks_http(template: &mut FlowTemplate, http: Http) {
    let scheme = if http.tls { "https" } else { "http" };
    let mut options = vec![
        ("url".to_owned(), Said::from(format!("{scheme}://dut.example/").as_str())),
        ("body".to_owned(), Said::from(http.object_octets.to_string().as_str())),
        ("requests".to_owned(), Said::from(http.requests.to_string().as_str())),
    ];
    if http.think_s > 0.0 {
        let think = Nanos::from_secs_f64(http.think_s).to_string();
        options.push(("think".to_owned(), Said::from(think.as_str())));
    }
    template.says = Says::App { app: Said::from("http"), options };
    template.data = None;
    template.udp = false;
    if http.tls {
        template.tls.get_or_insert_default();
    } else {
        template.tls = None;
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

fn measured(trial: &Trial, report: &Report, seconds: &mut Seconds) -> Measured {
    let lane = |lane: &Lane| {
        let stream = report.streams.iter().find(|stream| stream.name == lane.name);
        let measured = stream.map(|stream| lane_measured(&lane.name, lane.rate_fps, stream));
        let seconds = seconds.lanes.remove(&lane.name).unwrap_or_default();
        LaneMeasured { seconds, ..measured.unwrap_or_default() }
    };
    Measured { lanes: trial.lanes.iter().map(lane).collect(), ..of_run(report) }
}

/// Of a profile as it is.
fn measured_whole(report: &Report) -> Measured {
    let lane = |stream: &StreamReport| {
        lane_measured(&stream.name, stream.asked_pps.unwrap_or(stream.tx_pps), stream)
    };
    let signed = report.streams.iter().filter(|stream| stream.rx.is_some());
    Measured { lanes: signed.map(lane).collect(), ..of_run(report) }
}

/// What is not of streams.
fn of_run(report: &Report) -> Measured {
    let port = |port: &PortReport| PortMeasured {
        name: port.name.clone(),
        sent: port.tx.packets,
        received: port.rx.packets,
        foreign: port.rx.unsigned_packets,
    };
    let flows = report.flows.as_ref().and_then(flows_measured);
    // A device that lets no connection through is no fault of the generator.
    let tried = flows.as_ref().is_some_and(|flows| flows.attempted > 0);
    let counts = |reason: &&Reason| !(tried && reason.code == ReasonCode::NotDone);
    let reasons = report.verdict.reasons.iter().filter(counts);
    let not_kept: Vec<String> = reasons.map(|reason| reason.text.clone()).collect();
    Measured {
        lanes: Vec::new(),
        ports: report.ports.iter().map(port).collect(),
        flows,
        not_kept,
        cpu_s: report.cpu.user_s + report.cpu.system_s,
    }
}

fn flows_measured(flows: &FlowsReport) -> Option<FlowsMeasured> {
    let client = flows.total.client.as_ref()?;
    let sides = [Some(client), flows.total.server.as_ref()];
    let tcp =
        |name: &str| -> u64 { sides.iter().flatten().filter_map(|side| side.tcp.get(name)).sum() };
    let bad = client.http.iter().filter(|(class, _)| !matches!(class.as_str(), "2xx" | "3xx"));
    let tls = client.tls.iter().flat_map(|tls| tls.failed.values());
    let steady = client.steady.as_ref();
    let server = flows.total.server.as_ref().and_then(|server| server.steady.as_ref());
    Some(FlowsMeasured {
        attempted: client.attempted,
        established: client.established,
        completed: client.completed,
        failed: client.failed.clone(),
        errors: client.protocol_errors.values().chain(bad.map(|(_, n)| n)).chain(tls).sum(),
        peak_active: client.peak_active,
        completed_cps: steady.map_or(client.cps, |steady| steady.completed_cps),
        goodput_bps: steady.map_or(client.goodput_bps, |steady| steady.goodput_bps)
            + server.map_or(0.0, |server| server.goodput_bps),
        received_octets: client.received_octets,
        tcp_sent_octets: tcp("sent") + tcp("retransmit_octets"),
        tcp_resent_octets: tcp("retransmit_octets"),
        setup: client.setup_ns.as_ref().map(delay),
        first_byte: client.first_byte_ns.as_ref().map(delay),
        transaction: client.transaction_ns.as_ref().map(delay),
        duration: client.duration_ns.as_ref().map(delay),
    })
}

fn lane_measured(name: &str, offered_fps: f64, stream: &StreamReport) -> LaneMeasured {
    let rx = stream.rx.clone().unwrap_or_default();
    let gap = rx.arrival_gap_ns.as_ref().filter(|gap| gap.count > 0 && gap.mean > 0.0);
    let periods = rx.patterns.as_ref().and_then(|p| p.loss_period_packets.as_ref());
    LaneMeasured {
        name: name.into(),
        sent: stream.tx_packets,
        received: rx.packets.saturating_sub(rx.duplicates),
        lost: rx.lost,
        duplicates: rx.duplicates,
        reordered: rx.reordered,
        offered_fps,
        output_fps: gap.map(|gap| 1e9 / gap.mean),
        delay: rx.latency_ns.as_ref().map(delay),
        ipdv: rx.ipdv_ns.as_ref().map(delay),
        longest_loss: periods.map_or(rx.lost.min(1), |periods| periods.max),
        loss_periods: periods.map_or(u64::from(rx.lost > 0), |periods| periods.count),
        ..LaneMeasured::default()
    }
}

fn delay(distribution: &Distribution) -> Delay {
    Delay {
        min: distribution.min,
        mean: distribution.mean,
        p50: distribution.p50,
        p90: distribution.p90,
        p99: distribution.p99,
        p999: distribution.p999,
        max: distribution.max,
    }
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
