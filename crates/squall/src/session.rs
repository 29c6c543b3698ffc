//! From a profile to a report.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime},
};

use squall_engine::{Glance, Measure, PortTx, Running, Settings, Take};
use squall_measure::{FlowSettings, track::Place};
use squall_plan::{Assets, Cpu, FlowPort, Multiplier, Options, Plan, PlanPort, PortLimits};
use squall_port::{Port, PortFacts};
use squall_profile::Profile;
use squall_replay::{Reader, Replay};
use squall_stats::{EqualBins, Histogram};
use squall_units::Nanos;

use crate::{
    Capture, Error, assemble,
    attacking::{self, Live, Prepared},
    capture::{Capturing, accepted, filter_of},
    cpus::Claim,
    kinds::{Use, Wanted},
    loading::{Loaded, PlannedLoad},
    looking::Look,
    report::{
        Asked, EndedBy, Report, Sample,
        load::{ALL, LoadReport},
    },
    unseen, verdict,
};

/// A profile and how it is to be run.
#[derive(Clone, Debug)]
pub struct Session {
    pub profile: Profile,
    /// Workers; `None`: one a sending port, and one for receiving if a CPU is left.
    pub cores: Option<usize>,
    /// CPUs to bind the workers to, one each, and as many workers if `cores` is not given; `None`:
    /// CPUs of the process to which no other run has bound a worker, if there are enough. On
    /// virtual time workers are not bound.
    pub cpus: Option<Vec<u32>>,
    pub multiplier: Option<Multiplier>,
    /// `None`: virtual if every port says so (files).
    pub virtual_time: Option<bool>,
    /// Whether ports receive too.
    pub receive: bool,
    /// Hash all frames.
    pub fingerprint: bool,
    /// How long receiving goes on when everything is sent.
    pub linger: Duration,
    /// Which frames are received at all; `None`: all.
    pub filter: Option<String>,
    /// So many bins of this width: the gaps between the frames of each port are counted in such,
    /// too.
    pub gap_bins: Option<(usize, Nanos)>,
    /// Streams are told apart by what stands there in the frames that come:
    /// [`crate::looking::StreamLook::tracked`].
    pub places: Arc<[Place]>,
    /// What is written to files of what is received.
    pub capture: Option<Capture>,
    /// Each flow is measured for itself.
    pub flows: Option<FlowSettings>,
    /// Captures that are sent again, on all ports in their order; the profile has no streams then.
    pub replay: Option<Replay>,
    /// What the profile's attacks come to, where that is known; otherwise they are solved when the
    /// session is opened.
    pub attacks: Option<Arc<Prepared>>,
    /// Where the ground truth of attacks is written: as JSONL if the name ends so, else as CSV.
    pub labels: Option<PathBuf>,
    /// For the report: the command line.
    pub command: String,
}

/// Ports opened, plan compiled: ready to start.
pub struct Opened {
    session: Session,
    ports: Vec<Box<dyn Port>>,
    limits: Vec<PortLimits>,
    plan: Plan,
    claim: Claim,
    virtual_time: bool,
    take: Vec<Take>,
    source: Option<Reader>,
    played: Option<Arc<Loaded>>,
    labels: Option<attacking::LabelFile>,
}

/// A port that nothing is sent to is there to receive: if it cannot, the run would show nothing,
/// and seem well. A sink (`null`, a capture to write) may stand in for one.
///
/// # Errors
/// Why it does not.
fn receives(address: &str, port: &dyn Port) -> Result<(), Error> {
    let facts = port.facts();
    if facts.rx_queues > 0 || matches!(facts.kind, "null" | "pcap") {
        return Ok(());
    }
    let name = address.split([':', ',']).nth(1).unwrap_or_default();
    if port.generates() {
        return Err(Error::Usage(format!(
            "{address} sends only\n  try af_xdp:{name} or af_packet:{name} to receive"
        )));
    }
    match port.notes().iter().find(|note| note.contains("sends only")) {
        Some(why) => Err(Error::Environment(format!(
            "{address} cannot receive: {why}\n  or try af_packet:{name}"
        ))),
        None => Err(Error::Usage(format!(
            "{address} cannot receive: it has no receive queue\n  try rx_queues=1"
        ))),
    }
}

/// What would be sent; nothing is open.
pub struct Planned {
    pub plan: Plan,
    /// Port by port; `None` where one could not be opened, and the plan's notes say why.
    pub ports: Vec<Option<PortFacts>>,
    pub limits: Vec<PortLimits>,
    pub virtual_time: bool,
    /// Of flows.
    pub load: Option<PlannedLoad>,
    /// What attacks come to, in words; empty where there are none.
    pub attacks: String,
}

/// A run on its way.
pub struct Run {
    session: Session,
    running: Running,
    /// What the session's profile is compiled to, without what was added and removed while running.
    planned: Plan,
    limits: Vec<PortLimits>,
    virtual_time: bool,
    context: assemble::Context,
    series: Series,
    last: assemble::Last,
    last_load: crate::loading::LastLoad,
    capturing: Option<Capturing>,
    played: Option<Arc<Loaded>>,
    heard: Option<attacking::Heard>,
    labels: Option<attacking::LabelFile>,
    /// Who stopped it, if somebody did.
    stopped_by: OnceLock<EndedBy>,
    expected: Asked,
    /// Until the workers are gone.
    _claim: Claim,
}

/// What a report remembers of a run as it went. A run of days must not fill the memory: when there
/// are too many rows, every second point goes, and from then on half as many come.
#[derive(Default)]
struct Series {
    points: Vec<Sample>,
    rows: usize,
    /// Of so many samples one is a point: 2 to the power of this.
    thinned: u32,
    samples: u64,
}

/// Ports, streams and templates of all points together: some tens of megabytes.
const ROWS: usize = 200_000;

impl Series {
    fn push(&mut self, sample: Sample) {
        self.samples += 1;
        if !self.samples.is_multiple_of(1 << self.thinned) {
            return;
        }
        self.rows += Self::rows(&sample);
        self.points.push(sample);
        if self.rows > ROWS {
            // The newest stays.
            let mut nth = self.points.len();
            self.points.retain(|_| {
                nth -= 1;
                nth.is_multiple_of(2)
            });
            self.rows = self.points.iter().map(Self::rows).sum();
            self.thinned += 1;
        }
    }

    fn rows(sample: &Sample) -> usize {
        1 + sample.ports.len() + sample.streams.len() + sample.load.len()
    }
}

/// Streams and templates up to here have histograms in the live view; with more, watching would
/// disturb what is watched.
const WATCHED: usize = 64;

impl Session {
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            cores: None,
            cpus: None,
            multiplier: None,
            virtual_time: None,
            receive: true,
            fingerprint: false,
            linger: Duration::from_millis(200),
            filter: None,
            gap_bins: None,
            places: Arc::default(),
            capture: None,
            flows: None,
            replay: None,
            attacks: None,
            labels: None,
            command: String::new(),
        }
    }

    /// Receives on ports (name, address) and sends nothing. Such a run ends when it is stopped;
    /// what is lost is then what is missing between the first and the last sequence number of a
    /// stream.
    ///
    /// ```
    /// let report = squall::Session::listen([("A", "loop:doc-listen")]).open()?.start()?.finish()?;
    /// assert_eq!((report.ports[0].rx.packets, report.streams.len()), (0, 0));
    /// # Ok::<_, squall::Error>(())
    /// ```
    pub fn listen<N: Into<String>, A: Into<String>>(
        ports: impl IntoIterator<Item = (N, A)>,
    ) -> Self {
        let port = |(name, address): (N, A)| squall_profile::Port {
            name: name.into(),
            address: address.into(),
            at: squall_profile::At::default(),
        };
        let ports = ports.into_iter().map(port).collect();
        Self::new(Profile { origin: "<listen>".into(), ports, ..Profile::default() })
    }

    /// Sends captures again on ports (name, address), and receives nothing.
    pub fn replay<N: Into<String>, A: Into<String>>(
        replay: Replay,
        ports: impl IntoIterator<Item = (N, A)>,
    ) -> Self {
        Self { replay: Some(replay), receive: false, ..Self::listen(ports) }
    }

    /// As [`Session::listen`], on ports that are called as their addresses, as far as these tell
    /// them apart.
    ///
    /// # Errors
    /// A port that is there twice: each of its frames would be counted twice.
    pub fn listen_on<A: AsRef<str>>(addresses: &[A]) -> Result<Self, Error> {
        let names = crate::ports::names(addresses)?;
        Ok(Self::listen(names.into_iter().zip(addresses.iter().map(AsRef::as_ref))))
    }

    /// Compiles the plan and sends nothing. A port that cannot be opened (no permission, no such
    /// interface) is planned with what is known of it.
    ///
    /// # Errors
    /// Mistakes in addresses and profile.
    pub fn plan_only(&self) -> Result<Planned, Error> {
        let mut session = self.clone();
        session.attack()?;
        session.planned()
    }

    /// As [`Session::plan_only`], but no port is opened, and attacks are not solved: each port is
    /// planned with what is known of its interface.
    ///
    /// # Errors
    /// Mistakes in addresses and profile.
    pub fn check_only(&self) -> Result<Planned, Error> {
        let (mut limits, notes) =
            self.each_port(|port, _| Ok((crate::ports::known(&port.address)?, Vec::new())))?;
        let virtual_time = self.settle(&mut limits);
        let facts = vec![None; limits.len()];
        let played = self.played(&facts.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let mut plan = self.compile_for(&limits, None, &flow_ports(played.as_ref(), &facts))?;
        plan.notes.splice(0..0, notes);
        let load = self.profile.flows.as_ref().zip(played.as_ref());
        let load = load.map(|(said, loaded)| PlannedLoad::of(said, loaded, &mut plan.notes));
        Ok(Planned { plan, ports: facts, limits, virtual_time, load, attacks: String::new() })
    }

    fn planned(&self) -> Result<Planned, Error> {
        let (mut ports, mut generate) = (Vec::new(), Vec::new());
        let (mut limits, notes) =
            self.each_port(|port, wanted| match crate::ports::open(&port.address, wanted) {
                Ok((opened, limit, note)) => {
                    if opened.generates() {
                        generate.push(ports.len());
                    }
                    ports.push(Some(opened.facts().clone()));
                    Ok((limit, note))
                }
                Err(Error::Environment(why)) => {
                    ports.push(None);
                    let note = format!("port {}: assumed, because {why}", port.name);
                    Ok((crate::ports::assumed(&port.address), vec![note]))
                }
                Err(error) => Err(error),
            })?;
        let virtual_time = self.settle(&mut limits);
        let played = self.played(&ports.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let mut plan = self.compile(&limits, virtual_time, &flow_ports(played.as_ref(), &ports))?;
        for port in generate {
            squall_engine::can_be_generated(&plan, port, &plan.ports[port].address)
                .map_err(|error| Error::Usage(error.to_string()))?;
        }
        plan.notes.splice(0..0, notes);
        let load = self.profile.flows.as_ref().zip(played.as_ref());
        let load = load.map(|(said, loaded)| PlannedLoad::of(said, loaded, &mut plan.notes));
        let attacks = self.attacks.as_ref().map(|attacks| attacks.summary()).unwrap_or_default();
        Ok(Planned { plan, ports, limits, virtual_time, load, attacks })
    }

    /// Limits of all ports, and what the user should know of them.
    fn each_port(
        &self,
        mut look: impl FnMut(&squall_profile::Port, Wanted) -> Result<(PortLimits, Vec<String>), Error>,
    ) -> Result<(Vec<PortLimits>, Vec<String>), Error> {
        let (mut limits, mut notes) = (Vec::new(), Vec::new());
        for (i, port) in self.profile.ports.iter().enumerate() {
            let (limit, note) =
                look(port, self.wanted(i)).map_err(|error| self.at_port(error, port))?;
            limits.push(limit);
            // What is true of several ports is said once.
            notes.extend(note.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
        }
        Ok((limits, notes))
    }

    /// Solves the attacks of the profile, if that has not been done, and finds them their ways out.
    fn attack(&mut self) -> Result<(), Error> {
        if self.attacks.is_none() {
            self.attacks = attacking::prepare(&self.profile, &|_, _| true)?.map(Arc::new);
        }
        let Some(mut prepared) = self.attacks.take() else { return Ok(()) };
        if self.replay.is_some() {
            return Err(Error::Usage(
                "a run has attacks, or captures, not both\n  try background = \"FILE\" of \
                 [[attack]]"
                    .into(),
            ));
        }
        if prepared.live.is_some() && self.profile.flows.is_some() {
            return Err(Error::Usage(
                "a run has attacks that are spoken live, or flows, not both\n  try live = false, \
                 or two runs"
                    .into(),
            ));
        }
        Arc::make_mut(&mut prepared).settle(&mut self.profile.ports);
        self.replay = prepared.replay();
        self.attacks = Some(prepared);
        Ok(())
    }

    /// The attack that is spoken by TCP and UDP of our own, for its networks.
    fn spoken(&self) -> Option<&squall_profile::Attack> {
        let live = self.attacks.as_ref().is_some_and(|attacks| attacks.live.is_some());
        self.profile.attacks.iter().find(|attack| live && attack.live)
    }

    /// Ports on which captures are replayed, in their order.
    fn replayed(&self) -> Vec<usize> {
        match (&self.replay, &self.attacks) {
            (None, _) => Vec::new(),
            (Some(_), Some(attacks)) => attacks.ways.clone(),
            (Some(_), None) => (0..self.profile.ports.len()).collect(),
        }
    }

    /// What port `i` of the profile is wanted for.
    fn wanted(&self, i: usize) -> Wanted {
        let speaks =
            |port| self.spoken().is_some_and(|said| said.port == port || said.port2 == Some(port));
        let flows =
            |port| self.profile.flows.as_ref().is_some_and(|flows| flows.ports().contains(&port));
        let plays = |port| flows(port) || speaks(port);
        let streams = |port| self.profile.streams.iter().any(|s| s.port == port);
        let replays = self.replayed();
        let sends = |port| replays.contains(&port) || streams(port) || plays(port);
        let to = match (sends(i), self.receive || plays(i)) {
            (true, true) => Use::Both,
            (true, false) => Use::Send,
            (false, _) => Use::Receive,
        };
        let sending = (0..self.profile.ports.len()).filter(|&port| sends(port)).count().max(1);
        let cuts = self.profile.streams.iter().any(|s| s.port == i && s.segment.is_some());
        Wanted {
            to,
            cuts,
            answers: plays(i),
            workers: self.cores.map_or(1, |cores| cores.div_ceil(sending) as u32),
        }
    }

    /// What the session says about time and receiving; whether time is virtual.
    fn settle(&self, limits: &mut [PortLimits]) -> bool {
        let addresses = self.profile.ports.iter().map(|port| port.address.as_str());
        let said = addresses.zip(limits.iter().map(|limit| limit.virtual_time));
        let virtual_time = self.virtual_time.unwrap_or_else(|| crate::ports::on_virtual_time(said));
        for (i, limit) in limits.iter_mut().enumerate() {
            limit.virtual_time = virtual_time;
            if !self.receive && !self.wanted(i).answers {
                limit.rx_queues = 0;
            }
        }
        virtual_time
    }

    /// Opens the ports and compiles the plan.
    ///
    /// # Errors
    /// Mistakes in addresses and profile, ports that do not open.
    pub fn open(mut self) -> Result<Opened, Error> {
        self.attack()?;
        self.flows.as_ref().map_or(Ok(()), crate::flows::check)?;
        let (mut ports, mut take, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        let (mut limits, notes) = self.each_port(|port, wanted| {
            if self.capture.is_some() {
                unseen::check(&port.address)?;
            }
            let (mut opened, limit, note) = crate::ports::open(&port.address, wanted)?;
            if wanted.to != Use::Receive && unseen::is_unseen(opened.facts().kind, &port.address) {
                marks.extend(
                    crate::ports::interface_of(&port.address).as_deref().and_then(unseen::mark),
                );
            }
            if (wanted.to == Use::Receive && self.receive) || wanted.answers {
                receives(&port.address, opened.as_ref())?;
            }
            let filter =
                match filter_of(self.filter.as_deref(), self.capture.as_ref(), opened.facts())? {
                    Some(filter) => {
                        let taken = opened
                            .set_filter(&filter)
                            .map_err(|error| Error::Environment(error.to_string()))?;
                        (!taken).then_some(filter)
                    }
                    None => None,
                };
            take.push(Take { filter, link: opened.facts().link_type.into(), tap: None });
            ports.push(opened);
            Ok((limit, note))
        })?;
        let virtual_time = self.settle(&mut limits);
        let facts: Vec<_> = ports.iter().map(|port| Some(port.facts().clone())).collect();
        let played = self.played(&facts.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let (mut plan, claim) =
            self.claim(&limits, virtual_time, &flow_ports(played.as_ref(), &facts))?;
        let source = self.source(&limits)?;
        let again = self.profile.flows.as_ref().and_then(|flows| flows.replay.as_ref());
        let for_ever = again.is_some_and(|again| again.loops == 0);
        let for_ever = for_ever
            || self
                .replay
                .as_ref()
                .is_some_and(|replay| replay.loops == 0 && replay.limit.is_none());
        let endless = plan.streams.iter().any(|s| s.pattern.total().is_none())
            || goes_round(&plan)
            || for_ever;
        let unstopped = plan.stop == squall_profile::Stop::default();
        if virtual_time && endless && unstopped {
            return Err(Error::Usage(
                "on virtual time (files) a profile without an end never ends\n  try duration = \
                 \"1 s\" or packets = 1000 in the profile, --duration or --count on the command \
                 line"
                    .into(),
            ));
        }
        let claim = claim.with(marks);
        plan.notes.splice(0..0, notes);
        let played = played.map(Arc::new);
        let labels = self.labels.as_ref().map(|path| attacking::create(path)).transpose()?;
        Ok(Opened {
            session: self,
            ports,
            limits,
            plan,
            claim,
            virtual_time,
            take,
            source,
            played,
            labels,
        })
    }

    /// The flows of the profile's templates, for ports with these facts.
    fn played(&self, facts: &[Option<&PortFacts>]) -> Result<Option<Loaded>, Error> {
        let live = self.spoken().map(Live::flows);
        let Some(flows) = live.as_ref().or(self.profile.flows.as_ref()) else { return Ok(None) };
        if self.replay.is_some() && self.attacks.is_none() {
            return Err(Error::Usage(
                "a run has flows, or captures, not both\n  try two runs".into(),
            ));
        }
        let found = self
            .attacks
            .as_ref()
            .and_then(|attacks| attacks.live.as_ref())
            .map(|live| (*live.import).clone());
        let mut played = crate::loading::compile(&self.profile, flows, found, facts)?;
        match self.multiplier {
            Some(_) if played.flows.load.script.is_some() => {
                return Err(Error::Usage(
                    "a capture that is played has no rate to be multiplied".into(),
                ));
            }
            Some(Multiplier::Factor { num, den }) => {
                let load = played.flows.load.clone().times(num, den);
                Arc::make_mut(&mut played.flows).load = load;
            }
            // It says what streams come to.
            Some(Multiplier::Total(_)) if self.profile.streams.is_empty() => {
                return Err(Error::Usage(
                    "flows have no rate in frames or bits a second\n  try --mult 2x".into(),
                ));
            }
            Some(Multiplier::Total(_)) | None => {}
        }
        Ok(Some(played))
    }

    /// What reads the captures.
    fn source(&self, limits: &[PortLimits]) -> Result<Option<Reader>, Error> {
        let Some(replay) = &self.replay else { return Ok(None) };
        let streams = |port: &usize| self.profile.streams.iter().any(|s| s.port == *port);
        if self.attacks.is_none() && self.replayed().iter().any(streams) {
            return Err(Error::Usage(
                "a run replays captures or sends streams, not both\n  try two runs".into(),
            ));
        }
        let longest = self.replayed().into_iter().map(|port| limits[port].max_frame).collect();
        let source = Reader::open(replay.clone(), longest);
        source.map(Some).map_err(|error| Error::Usage(error.to_string()))
    }

    /// The plan, and its CPUs held: one that another run took meanwhile is looked at no more.
    fn claim(
        &self,
        limits: &[PortLimits],
        virtual_time: bool,
        flows: &[FlowPort],
    ) -> Result<(Plan, Claim), Error> {
        loop {
            let plan = self.compile(limits, virtual_time, flows)?;
            if let Ok(claim) = Claim::of(&plan, self.cpus.is_some()) {
                return Ok((plan, claim));
            }
        }
    }

    fn compile(
        &self,
        limits: &[PortLimits],
        virtual_time: bool,
        flows: &[FlowPort],
    ) -> Result<Plan, Error> {
        let pin = match virtual_time {
            true => None,
            false => Some(crate::cpus::choose(self.cpus.as_deref(), self.cores)?),
        };
        self.compile_for(limits, pin, flows)
    }

    fn compile_for(
        &self,
        limits: &[PortLimits],
        pin: Option<Vec<Cpu>>,
        flows: &[FlowPort],
    ) -> Result<Plan, Error> {
        let options = Options {
            cores: self.cores.or(self.cpus.as_ref().map(Vec::len)),
            cpus: crate::host::cpus(),
            pin,
            multiplier: self.multiplier,
            replay: self.replayed(),
            flows: flows.to_vec(),
        };
        let folder = Path::new(&self.profile.origin).parent().unwrap_or(Path::new(""));
        Ok(squall_plan::compile(&self.profile, limits, &Disk(folder), &options)?)
    }

    /// An address error, with the place of the port in the profile.
    fn at_port(&self, error: Error, port: &squall_profile::Port) -> Error {
        match error {
            Error::Usage(text) if port.at.line > 0 => {
                let mut diagnostic = squall_profile::Diagnostic::at(
                    port.at,
                    format!("port {}: {text}", port.name),
                    vec![],
                );
                diagnostic.origin.clone_from(&self.profile.origin);
                Error::Input(squall_profile::Diagnostics(vec![diagnostic]))
            }
            // Who is called as his address has been named.
            Error::Usage(text) if !text.starts_with(&port.name) => {
                Error::Usage(format!("port {}: {text}", port.name))
            }
            Error::Environment(text) if !text.starts_with(&port.name) => {
                Error::Environment(format!("port {}: {text}", port.name))
            }
            other => other,
        }
    }
}

/// Ports that flows are played on, as a plan has to know them; an unknown one is as the others are.
fn flow_ports(played: Option<&Loaded>, facts: &[Option<PortFacts>]) -> Vec<FlowPort> {
    let longest = |side: &squall_engine::FlowSide| match &facts[side.port] {
        Some(facts) => side.max_frame(facts),
        None => side.network.longest_frame(),
    };
    let sides = played.iter().flat_map(|played| &played.flows.sides);
    sides.map(|side| FlowPort { port: side.port, max_frame: longest(side) }).collect()
}

/// Whether streams start each other in a circle without end.
fn goes_round(plan: &Plan) -> bool {
    let follow = |i: usize| plan.streams[i].next.filter(|n| n.times.is_none()).map(|n| n.stream);
    // Who can take as many arrows as there are streams has come back to one.
    (0..plan.streams.len())
        .any(|first| (0..plan.streams.len()).try_fold(first, |i, _| follow(i)).is_some())
}

/// Files, and the folder of the profile.
struct Disk<'a>(&'a Path);

impl Assets for Disk<'_> {
    fn file(&self, path: &str) -> io::Result<Vec<u8>> {
        squall_profile::read_file(path)
    }

    fn payload(&self, path: &str) -> io::Result<Vec<u8>> {
        squall_profile::read_file(self.0.join(path))
    }

    fn capture_frame(&self, path: &str, number: u64) -> Result<Vec<u8>, String> {
        let frame = squall_pcap::frame_number(path, number).map_err(|e| e.to_string())?;
        squall_wire::link::to_ethernet(frame.link_type.0, &frame.data).map_err(|what| {
            let link = frame.link_type;
            format!(
                "{path}: packet {number} is of link type {link} and cannot be sent as Ethernet: \
                 {what}"
            )
        })
    }
}

impl Opened {
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn virtual_time(&self) -> bool {
        self.virtual_time
    }

    /// Ports in the profile's order.
    pub fn facts(&self) -> impl Iterator<Item = &squall_port::PortFacts> {
        self.ports.iter().map(|p| p.facts())
    }

    /// Starts the workers; the first frame is due some 20 ms later.
    ///
    /// # Errors
    /// A queue that does not open.
    pub fn start(mut self) -> Result<Run, Error> {
        let capture = self.session.capture.as_ref();
        let filter = self.session.filter.as_deref();
        let capturing = capture
            .map(|c| Capturing::start(c, &self.ports, filter, self.virtual_time))
            .transpose()?;
        if let Some(capturing) = &capturing {
            self.take
                .iter_mut()
                .enumerate()
                .for_each(|(i, take)| take.tap = Some(capturing.taps(i)));
        }
        let (limits, ports) = (&self.limits, &self.ports);
        let receives = |port: usize| {
            limits[port].rx_queues > 0 && !matches!(ports[port].facts().kind, "null" | "pcap")
        };
        let heard = self
            .session
            .attacks
            .as_ref()
            .and_then(|attacks| attacks.listen(&mut self.take, receives));
        let flows = self.session.flows.clone().map(|flows| FlowSettings {
            wall: (!self.virtual_time).then(crate::host::wall_offset),
            restarts: self.plan.only_receives(),
            ..flows
        });
        let settings = Settings {
            virtual_time: self.virtual_time,
            fingerprint: self.session.fingerprint,
            measure: Measure {
                count_only: capturing.is_some()
                    && !self.session.capture.as_ref().is_some_and(|c| c.beside),
                fingerprint: self.session.fingerprint,
                gap_bins: self
                    .session
                    .gap_bins
                    .map(|(bins, width)| EqualBins::new(bins, width.0.max(1))),
                flows: flows.clone(),
                places: self.session.places.clone(),
            },
            take: self.take,
            linger: self.session.linger,
            flows: self.played.as_ref().map(|played| played.flows.clone()),
        };
        let context = assemble::Context {
            started: SystemTime::now(),
            cpu: crate::host::cpu(),
            contention: crate::host::contention(),
            command: self.session.command.clone(),
            fingerprint: self.session.fingerprint,
            attacks: self.session.attacks.is_some(),
            filter: self.session.filter.clone().filter(|text| !text.trim().is_empty()),
            flows,
        };
        let running =
            squall_engine::start(Arc::new(self.plan.clone()), self.ports, settings, self.source);
        let running = running.map_err(|e| match e {
            squall_engine::EngineError::Port { error, .. }
                if error.kind() == io::ErrorKind::InvalidInput =>
            {
                Error::Usage(error.to_string())
            }
            other => Error::Engine(other),
        })?;
        Ok(Run {
            session: self.session,
            running,
            planned: self.plan,
            limits: self.limits,
            virtual_time: self.virtual_time,
            context,
            series: Series::default(),
            last: assemble::Last { at: Instant::now(), ..assemble::Last::default() },
            last_load: crate::loading::LastLoad::default(),
            capturing,
            played: self.played,
            heard,
            labels: self.labels,
            stopped_by: OnceLock::new(),
            expected: Asked::default(),
            _claim: self.claim,
        })
    }
}

impl Run {
    pub fn plan(&self) -> &Plan {
        self.running.plan()
    }

    /// As it is now.
    pub fn profile(&self) -> &Profile {
        &self.session.profile
    }

    pub fn virtual_time(&self) -> bool {
        self.virtual_time
    }

    /// Seconds since the first departure was due.
    pub fn elapsed_s(&self) -> f64 {
        self.running.elapsed().as_secs_f64()
    }

    /// Waits at most `timeout` for all frames to be sent; whether they are.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        self.running.wait_sent(timeout)
    }

    /// Frames received so far, on all ports.
    pub fn received(&self) -> u64 {
        let snapshots = self.running.snapshot(false);
        if let Some(capturing) = &self.capturing {
            capturing.tell(&self.running.interfaces(), &snapshots);
        }
        snapshots.iter().flat_map(|s| &s.rx).map(|rx| rx.seen.packets).sum()
    }

    /// Whether there is no port left that could receive anything: all are lost, and the report says
    /// why.
    pub fn is_deaf(&self) -> bool {
        let snapshots = self.running.snapshot(false);
        let mut queues = snapshots.iter().flat_map(|s| &s.rx).peekable();
        queues.peek().is_some() && queues.all(|queue| queue.error.is_some())
    }

    /// Whether the capture has ended by itself, or cannot go on; never without one.
    pub fn captured(&self) -> bool {
        self.capturing.as_ref().is_some_and(Capturing::is_over)
    }

    /// What the capture waits for is now.
    pub fn trigger(&self) {
        self.capturing.iter().for_each(Capturing::trigger);
    }

    /// Whether nothing is sent: [`Session::listen`].
    pub fn listening(&self) -> bool {
        self.running.plan().only_receives()
    }

    /// Rates since the last call, and the report so far. Each call is a point of the report's
    /// series.
    pub fn sample(&mut self) -> (Sample, Report) {
        let templates = self.played.as_ref().map_or(0, |played| played.flows.load.templates.len());
        let full = self.running.stream_names().count() + templates <= WATCHED;
        let snapshots = self.running.snapshot(full);
        let elapsed = self.running.elapsed();
        let accepted = accepted(&snapshots);
        let flows = || snapshots.iter().flat_map(|snapshot| &snapshot.flows);
        let kept = kept(&snapshots);
        let load =
            self.played.as_ref().map(|played| loaded(played, self.running.plan(), &snapshots));
        let loading =
            self.played.as_ref().map(|played| self.last_load.sample(&played.flows.load, flows()));
        let totals = assemble::Totals::of(&self.running, snapshots);
        let mut report =
            totals.report(&self.context, self.running.plan(), elapsed, &[], Vec::new());
        assemble::tell_links(&mut report, &self.running.links(), self.running.start());
        if let Some(load) = &load {
            report.sources.extend(verdict::flows(load, &kept, self.session.attacks.is_some()));
        }
        report.verdict = verdict::judge(&report, &totals.facts(EndedBy::Running, &report));
        report.load = load;
        report.capture =
            self.capturing.as_ref().map(|capturing| capturing.so_far(&report, accepted));
        let mut sample = totals.sample(&mut self.last, elapsed, &report);
        sample.load = loading.unwrap_or_default();
        if self.listening() {
            sample
                .streams
                .retain(|s| report.streams.iter().any(|r| r.name == s.name && r.rx.is_some()));
            report.streams.retain(|s| s.rx.is_some());
        }
        // Thousands of streams an instant would say nothing to anybody.
        let streams = if full { sample.streams.clone() } else { Vec::new() };
        let mut load = sample.load.clone();
        if load.len() > WATCHED {
            load.retain(|row| row.name == ALL);
        }
        self.series.push(Sample {
            streams,
            load,
            ports: sample.ports.clone(),
            capture: sample.capture.clone(),
            ..sample
        });
        (sample, report)
    }

    /// The points of the report's series so far.
    pub fn series(&self) -> &[Sample] {
        &self.series.points
    }

    /// Pauses a stream by name, the streams of a group, a template, or all; what would have been
    /// due meanwhile is due later. Of a template no more flows begin; those that are open go on.
    ///
    /// # Errors
    /// An unknown name.
    pub fn pause(&self, stream: Option<&str>) -> Result<(), Error> {
        Ok(self.running.pause(stream)?)
    }

    /// # Errors
    /// An unknown name.
    pub fn resume(&self, stream: Option<&str>) -> Result<(), Error> {
        Ok(self.running.resume(stream)?)
    }

    /// Makes the run that of another profile: streams of the same name and frames go on, at their
    /// new rate; others are added and removed. Its duration, packets and octets count from the
    /// run's beginning. Ports must be the same, and frames no longer than those that the run was
    /// started with. Of templates the rates may differ (`cps`, `weight`, `users`, `active_limit`
    /// and what `[flows]` aims at), and nothing else.
    ///
    /// # Errors
    /// Mistakes in the profile; nothing is changed then.
    pub fn change(&mut self, profile: Profile) -> Result<(), Error> {
        let addresses = |p: &Profile| {
            p.ports.iter().map(|p| (p.name.clone(), p.address.clone())).collect::<Vec<_>>()
        };
        if addresses(&profile) != addresses(&self.session.profile) {
            return Err(Error::Usage("ports cannot change while running\n  try a new run".into()));
        }
        self.become_session(Session { profile, ..self.session.clone() })
    }

    /// All rates are those of the profile times this; of flows a factor only.
    ///
    /// # Errors
    /// As [`Run::change`]; a run that is all replay or attacks, which go on as they began.
    pub fn multiply(&mut self, by: Multiplier) -> Result<(), Error> {
        let profile = &self.session.profile;
        if profile.streams.is_empty() && profile.flows.is_none() {
            let what = if self.session.replay.is_some() { "a replay" } else { "attacks" };
            return Err(Error::Usage(format!(
                "the rate of {what} cannot change while running\n  try a new run"
            )));
        }
        self.become_session(Session { multiplier: Some(by), ..self.session.clone() })
    }

    /// What all rates are multiplied with; `None`: nothing.
    pub fn multiplier(&self) -> Option<Multiplier> {
        self.session.multiplier
    }

    /// All rates are those of now times `num / den`; of flows, as [`Run::multiply`].
    ///
    /// # Errors
    /// As [`Run::change`].
    pub fn scale(&mut self, num: u64, den: u64) -> Result<(), Error> {
        let now = self.session.multiplier.unwrap_or(Multiplier::Factor { num: 1, den: 1 });
        let by = now.times(num, den).ok_or_else(|| Error::Usage("there is no such rate".into()))?;
        self.multiply(by)
    }

    /// Begins flows as often as `amount` says: those of `template`, or (`None`) of all that have a
    /// weight together. It has to be of the kind that the profile has.
    ///
    /// # Errors
    /// An unknown template, another kind of amount.
    pub fn set_load(&mut self, template: Option<&str>, amount: Amount) -> Result<(), Error> {
        let mut profile = self.session.profile.clone();
        let Some(flows) = &mut profile.flows else {
            return Err(Error::Usage("a run without templates has no load".into()));
        };
        let Some(name) = template else {
            amount.put_into(&mut flows.target)?;
            return self.change(profile);
        };
        let known: Vec<_> = flows.templates.iter().map(|template| template.name.clone()).collect();
        match flows.templates.iter_mut().find(|template| template.name == name) {
            Some(template) => amount.put(name, &mut template.arrival)?,
            None => {
                let hint = squall_profile::suggest(name, known.iter().map(String::as_str));
                return Err(Error::Engine(squall_engine::EngineError::UnknownStream {
                    name: name.to_owned(),
                    hint,
                }));
            }
        }
        self.change(profile)
    }

    fn become_session(&mut self, session: Session) -> Result<(), Error> {
        let facts: Vec<_> = (0..self.planned.ports.len())
            .map(|port| Some(self.running.port_facts(port).clone()))
            .collect();
        let played = session.played(&facts.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        match (&self.played, &played) {
            (None, None) => {}
            (Some(old), Some(new)) if old.flows.sides == new.flows.sides => {
                old.flows
                    .load
                    .can_become(&new.flows.load)
                    .map_err(|what| Error::Engine(squall_engine::EngineError::FixedLoad(what)))?;
            }
            _ => {
                return Err(Error::Engine(squall_engine::EngineError::FixedLoad(
                    "ports or networks of flows".into(),
                )));
            }
        }
        let new = session.compile_for(&self.limits, None, &flow_ports(played.as_ref(), &facts))?;
        // Queues were opened with slots for the frames that there were.
        let mut ports = new.ports.iter().zip(&self.running.plan().ports);
        let longer = |now: &PlanPort, opened: &PlanPort| {
            now.max_frame > opened.max_frame || now.cut_frame > opened.cut_frame
        };
        if let Some((now, opened)) = ports.find(|(now, opened)| longer(now, opened)) {
            let (name, len) = (&now.name, now.max_frame.max(now.cut_frame) + squall_units::FCS_LEN);
            let room = match opened.max_frame {
                0 => "to send nothing".to_owned(),
                max => format!("for frames of at most {}", max + squall_units::FCS_LEN),
            };
            return Err(Error::Usage(format!(
                "port {name} was opened {room}, and cannot send frames of {len} octets\n  try a \
                 new run, or a stream of such frames from the start, paused until it is wanted"
            )));
        }
        if session.profile.stop != self.session.profile.stop {
            self.running.limit(session.profile.stop)?;
        }
        if let Some(new) = played {
            self.running.change_load(new.flows.load.clone())?;
            self.played = Some(Arc::new(new));
        }
        self.running.apply(self.planned.diff(&new))?;
        (self.planned, self.session) = (new, session);
        Ok(())
    }

    /// Lets so many more frames of a held replay leave.
    pub fn step(&self, frames: u64) {
        self.running.step(frames);
    }

    /// Nothing more is sent.
    pub fn stop(&self) {
        self.stop_because(EndedBy::Stopped);
    }

    /// As [`Run::stop`]; the report says why. A run that is over is so already.
    pub fn stop_because(&self, why: EndedBy) {
        _ = self.stopped_by.set(why);
        self.running.stop();
    }

    /// A run that only receives ends by whoever watches it: at this end, which the report tells as
    /// asked for.
    pub fn expect(&mut self, asked: Asked) {
        self.expected = asked;
    }

    /// Whether the run comes to an end by itself.
    fn would_end(&self) -> bool {
        let profile = &self.session.profile;
        let stop = profile.stop;
        let asked = stop.duration.is_some() || stop.packets.is_some() || stop.octets.is_some();
        let endless = |s: &squall_plan::PlanStream| {
            s.pattern.packets == u64::MAX || s.pattern.bursts == u64::MAX
        };
        let streams = !self.planned.streams.iter().any(endless);
        let replay = self.session.replay.as_ref().is_none_or(|replay| replay.loops > 0);
        let flows = self.played.as_ref().is_none_or(|played| {
            let load = &played.flows.load;
            let limited = load.limits.flows.is_some()
                || load.limits.duration.is_some()
                || load.script.is_some();
            limited || load.templates.iter().all(|template| template.limit.is_some())
        });
        asked
            || self.expected != Asked::default()
            || (!self.listening() && streams && replay && flows)
    }

    /// All counters so far, in figures alone: thousands of streams cost the workers a fraction of
    /// what [`Run::sample`] does. No point of the report's series.
    pub fn look(&self) -> Look {
        let ports = self.running.plan().ports.len();
        let wall_offset_ns = if self.virtual_time { 0 } else { crate::host::wall_offset() };
        Look::of(self.running.stream_names(), ports, wall_offset_ns, self.running.glance())
    }

    /// Waits for the end that the profile sets, then reports. Without such an end call
    /// [`Run::stop`] first, or this waits for ever.
    ///
    /// # Errors
    /// A worker that failed.
    pub fn finish(self) -> Result<Report, Error> {
        self.finish_looking().map(|(report, _)| report)
    }

    /// As [`Run::finish`], and the last look.
    pub(crate) fn finish_looking(mut self) -> Result<(Report, Look), Error> {
        while !self.running.wait_sent(Duration::from_secs(1)) {}
        let plan = self.running.plan().clone();
        let names: Vec<String> = self.running.stream_names().map(str::to_owned).collect();
        let facts = (0..plan.ports.len()).map(|p| self.running.port_facts(p).clone()).collect();
        let (listening, elapsed) = (self.listening(), self.running.elapsed());
        let epoch = match self.virtual_time {
            true => attacking::epoch(&self.session.profile.ports),
            false => {
                Nanos(self.running.start().0.saturating_add_signed(crate::host::wall_offset()))
            }
        };
        let ports = plan.ports.len();
        let wall_offset_ns = if self.virtual_time { 0 } else { crate::host::wall_offset() };
        let expected = self.expected;
        let (stopped_by, would_end) = (self.stopped_by.get().copied(), self.would_end());
        let start = self.running.start();
        let outcome = self.running.finish()?;
        let workers = outcome.workers.iter().map(Glance::from);
        let look = Look::of(names.iter().map(String::as_str), ports, wall_offset_ns, workers);
        if let Some(capturing) = &self.capturing {
            capturing.tell(&outcome.interfaces, &outcome.workers);
        }
        let accepted = accepted(&outcome.workers);
        let load = self.played.as_ref().map(|played| loaded(played, &plan, &outcome.workers));
        let attacked = self.session.attacks.as_ref().map(|attacks| {
            let (failed, served) =
                crate::loading::ended(outcome.workers.iter().flat_map(|worker| &worker.flows));
            (attacks, failed, served)
        });
        let kept = kept(&outcome.workers);
        let totals = assemble::Totals::new(names, facts, outcome.workers);
        // Who sends nothing has no last departure: the run was as long as it was listened, or as
        // the file is.
        let duration = match listening {
            true if elapsed == Nanos::ZERO => totals.arrivals(),
            true => elapsed,
            false => outcome.duration,
        };
        let mut report =
            totals.report(&self.context, &plan, duration, &outcome.interfaces, self.series.points);
        assemble::tell_links(&mut report, &outcome.links, start);
        if let (Some(replay), Some(replayed)) = (&self.session.replay, &outcome.replayed) {
            let retried = totals.retried();
            let ports = self
                .session
                .replayed()
                .into_iter()
                .map(|port| (&report.ports[port], retried[port]))
                .collect::<Vec<_>>();
            report.replay =
                Some(crate::replay::report(replay, replayed, &ports, duration.as_secs_f64()));
        }
        if let Some((attacks, failed, served)) = attacked {
            report.attacks = attacks.reports(
                self.played.as_deref(),
                (&failed, &served),
                self.heard.as_ref(),
                duration,
            );
            if let Some(labels) = self.labels {
                labels.write(&attacks.sent_until(duration), epoch)?;
            }
        }
        if let (Some(replay), Some(replayed)) = (&self.session.replay, &outcome.replayed) {
            crate::replay::tell(replay, replayed, &mut report.sources);
        }
        if let Some(load) = load {
            report.sources.extend(verdict::flows(&load, &kept, self.session.attacks.is_some()));
            report.load = Some(load);
        }
        let ended_by = match stopped_by {
            Some(why) => why,
            None => ended_by(&report, elapsed, self.virtual_time),
        };
        let stopped = ended_by == EndedBy::Stopped || ended_by.signal().is_some();
        for source in report.sources.iter_mut().filter(|source| source.ended_by.is_empty()) {
            source.ended_by = ended_by.to_string();
        }
        if listening {
            report.asked = expected;
        }
        report.cut_short = stopped && would_end;
        report.verdict = verdict::judge(&report, &totals.facts(ended_by, &report));
        let told = outcome.notes.into_iter().filter(|note| !plan.notes.contains(note));
        report.notes.extend(told);
        if let Some(capturing) = self.capturing {
            capturing.finish(&mut report, accepted);
        }
        if listening {
            report.streams.retain(|s| s.rx.is_some());
        }
        Ok((report, look))
    }
}

/// How often flows begin, in the unit of the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Cps(f64),
    /// Open at once.
    Active(u64),
    Bandwidth(squall_units::Rate),
    Users(u32),
    Weight(u32),
}

impl Amount {
    fn put_into(self, target: &mut Option<squall_profile::Target>) -> Result<(), Error> {
        use squall_profile::Target;
        *target = Some(match (&target, self) {
            (Some(Target::Cps(_)), Self::Cps(cps)) if cps > 0.0 => Target::Cps(cps),
            (Some(Target::Active(_)), Self::Active(flows)) => Target::Active(flows),
            (Some(Target::Bandwidth(_)), Self::Bandwidth(rate)) => Target::Bandwidth(rate),
            (Some(Target::Cps(_)), _) => {
                return Err(unlike("the load aims at a total of CPS", "cps = 1000"));
            }
            (Some(Target::Active(_)), _) => {
                return Err(unlike("the load aims at a number of open flows", "active = 1000"));
            }
            (Some(Target::Bandwidth(_)), _) => {
                return Err(unlike("the load aims at a bandwidth", "bandwidth = \"1 Gbps\""));
            }
            (None, _) => return Err(unlike("the load aims at no total", "a template's own")),
        });
        Ok(())
    }

    fn put(self, name: &str, arrival: &mut squall_profile::Arrival) -> Result<(), Error> {
        use squall_profile::Arrival;
        match (arrival, self) {
            (Arrival::Cps { cps, .. }, Self::Cps(new)) if new > 0.0 => *cps = new,
            (Arrival::Weight { weight, .. }, Self::Weight(new)) => *weight = new,
            (Arrival::Users { users, .. }, Self::Users(new)) => *users = new,
            (Arrival::Cps { .. }, _) => {
                return Err(unlike(
                    &format!("template {name:?} has cps"),
                    "cps = 1000, or a pause",
                ));
            }
            (Arrival::Weight { .. }, _) => {
                return Err(unlike(&format!("template {name:?} has a weight"), "weight = 2"));
            }
            (Arrival::Users { .. }, _) => {
                return Err(unlike(&format!("template {name:?} has users"), "users = 100"));
            }
            (Arrival::None, _) => {
                return Err(unlike(&format!("template {name:?} begins no flows"), "another"));
            }
        }
        Ok(())
    }
}

fn unlike(what: &str, hint: &str) -> Error {
    Error::Usage(format!(
        "{what}, which does not change its kind while running, and is above 0\n  try {hint}"
    ))
}

/// What brought a run to its end that nobody stopped.
fn ended_by(report: &Report, elapsed: Nanos, virtual_time: bool) -> EndedBy {
    let sent = |of: fn(&crate::report::PortReport) -> u64| report.ports.iter().map(of).sum::<u64>();
    let asked = &report.asked;
    if asked.packets.is_some_and(|packets| sent(|p| p.tx.packets + p.tx.errors) >= packets) {
        EndedBy::Packets
    } else if asked.octets.is_some_and(|octets| sent(|p| p.tx.octets) >= octets) {
        EndedBy::Octets
    } else if asked
        .duration_s
        .is_some_and(|seconds| virtual_time || elapsed.as_secs_f64() >= seconds)
    {
        EndedBy::Duration
    } else {
        EndedBy::Done
    }
}

/// How the schedule of flows was kept, on all ports that carry some.
fn kept(workers: &[squall_engine::Snapshot]) -> verdict::Kept {
    let mut kept = verdict::Kept::default();
    for worker in workers.iter().filter(|worker| !worker.flows.is_empty()) {
        worker.flows.iter().for_each(|flows| kept.pacing.merge(flows.statistics.pacing));
        let ports = || worker.flows.iter().map(|flows| flows.port);
        let theirs = |tx: &&PortTx| {
            tx.source == squall_engine::SourceKind::Flows && ports().any(|port| port == tx.port)
        };
        for tx in worker.tx.iter().filter(theirs) {
            kept.stalls = kept.stalls.or(tx.stalls);
            kept.blocked = kept.blocked.max(tx.blocked);
        }
    }
    kept
}

/// What became of the flows so far.
fn loaded(played: &Loaded, plan: &Plan, workers: &[squall_engine::Snapshot]) -> LoadReport {
    let names: Vec<_> = plan.ports.iter().map(|port| port.name.clone()).collect();
    crate::loading::report(played, &names, workers.iter().flat_map(|worker| &worker.flows))
}

pub(crate) type StreamHistograms = HashMap<u32, (Histogram, Histogram)>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PortSample;

    #[test]
    fn a_series_of_days_stays_small_and_keeps_its_ends() {
        let mut series = Series::default();
        let ports = vec![PortSample::default(); 9];
        for i in 1..=500_000 {
            series.push(Sample { t_s: f64::from(i), ports: ports.clone(), ..Sample::default() });
        }
        assert!((ROWS / 2..=ROWS).contains(&series.rows), "{}", series.rows);
        let instants: Vec<f64> = series.points.iter().map(|point| point.t_s).collect();
        let widest = instants.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(instants[0] <= 64.0 && instants[instants.len() - 1] > 499_900.0 && widest <= 64.0);
        assert!(instants.is_sorted());
    }
}
