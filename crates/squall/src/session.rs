//! Runs of a profile, from planning to the report.

use std::{
    collections::hash_map::RandomState,
    fs::File,
    hash::{BuildHasher, Hasher},
    io,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime},
};

use squall_apps::{Import, ImportOptions, KeyLog};
use squall_engine::{Counters, MakeSink, Measure, Replayed, Running, Settings, Take};
use squall_flows::{Ignored, Interface, OpenFlow};
use squall_machine::{
    Names,
    cpus::{self, Claim},
    kinds::{Use, Wanted},
    ports, room,
};
use squall_measure::{FlowSettings, track::Place};
use squall_options::{Clock, Multiplier, Precision, RunOptions};
use squall_plan::{
    Assets, Cpu, Inputs, Options, Plan, PlanPort, PlanReplay, PlanStream, PlannedLoad, PortLimits,
    explain::Preview,
    text::{Shown, ShownPort, plan_text},
};
use squall_port::{CommonClock, Port, PortFacts};
use squall_port_linux::bypass;
use squall_profile::{Attack, AttackOf, AttackPace, Profile, RouterStep};
use squall_record::{
    Context, Counted, End, Record, ReplayEnd, Usage,
    host_table::HostSearch,
    load::{self, LastLoad},
    received,
    sample::{Last, Series},
    totals::Totals,
};
use squall_replay::{Input, Reader, Timing};
use squall_report::{
    conversations::Flows,
    host_table::{HostDetail, HostPage, HostQuestion},
    verdict,
};
use squall_stats::EqualBins;
use squall_units::{Cannot, Division, Nanos, Picos};

use crate::{
    Error,
    attacking::{self, Prepared},
    capture::{Capture, Capturing, filter_of},
    report::{Asked, EndedBy, NodeClock, Report, Sample, fail_if::FailIf, flows::ALL},
    routers::{Routers, native_states},
    settings,
};

/// A profile and the options of its run.
///
/// ```
/// # let profile = squall::Profile::default();
/// let options = squall::RunOptions { seed: Some(7), ..Default::default() };
/// assert_eq!(squall::Session::new(profile).with(options)?.profile.seed, Some(7));
/// # Ok::<_, squall::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    pub profile: Profile,
    /// Options that have a key in the profile (end, seed) move to `profile` when the session is
    /// opened.
    pub options: RunOptions,
    pub caller: Caller,
}

/// Settings that neither a profile nor an option can have, made by the program that starts the run.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Text for the report: the command line, and the name of this node if several nodes share the
    /// run.
    pub command: String,
    pub node: Option<String>,
    /// The clock that the nodes share on real time; `None`: this machine's own clock.
    pub clock: Option<NodeClock>,
    /// The key in the run's signatures, which the nodes share; `None`: derived from the seed, or a
    /// new one (docs/adr/0002).
    pub key: Option<u16>,
    /// Bit positions in received frames. Each stream is counted separately per value of these bits:
    /// [`crate::totals::StreamTotals::tracked`].
    pub places: Arc<[Place]>,
    /// Whether the process ends after the run. Nothing can change the run then, so the streams of
    /// its profile are freed once they are planned. The memory of many streams is not freed at the
    /// end, because that takes as long as their report.
    pub ends_process: bool,
    /// Further sinks, each with the index of its port. They get all frames that the run receives
    /// there.
    pub listeners: Listeners,
}

/// Sinks of a caller, by port.
#[derive(Clone, Default)]
pub struct Listeners(pub Vec<(usize, MakeSink)>);

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(port, _)| port)).finish()
    }
}

/// A session whose options are merged and whose attacks are solved: ready to be planned or opened.
#[derive(Clone)]
pub struct Resolved {
    profile: Profile,
    options: RunOptions,
    caller: Caller,
    /// Names and addresses of the ports as written by the user. The addresses in `profile` may have
    /// further options (`virtual`).
    named: Vec<(String, String)>,
    /// Criteria of `abort_if`.
    criteria: Vec<FailIf>,
    capture: Option<Capture>,
    flows: Option<FlowSettings>,
    /// Addresses to which host names were resolved.
    names: Names,
    attacks: Option<Arc<Prepared>>,
    /// The replays that send `attacks`.
    replays: Vec<PlanReplay>,
    /// The file that gets the secrets of TLS sessions. It is there from the opening on, so that an
    /// unwritable path is reported early.
    key_log: Option<KeyLog>,
    /// The file that gets the routes of streams, likewise.
    routes_csv: Option<Arc<File>>,
}

/// A session whose ports are open and whose plan is compiled: ready to start.
pub struct Opened {
    session: Resolved,
    ports: Vec<Box<dyn Port>>,
    limits: Vec<PortLimits>,
    plan: Plan,
    claim: Claim,
    virtual_time: bool,
    take: Vec<Take>,
    readers: Vec<Reader>,
    labels: Option<attacking::LabelFile>,
}

/// Checks that a port without streams can receive. Otherwise the run would measure nothing but
/// still look valid. A sink (`null`, a capture file) is accepted, because users substitute it for a
/// port that receives.
///
/// # Errors
/// The port cannot receive; the error has the reason.
fn receives(address: &str, port: &dyn Port) -> Result<(), Error> {
    let facts = port.facts();
    if facts.rx_queues > 0 || matches!(facts.kind, "null" | "pcap" | squall_port::elsewhere::KIND) {
        return Ok(());
    }
    let name = address.split([':', ',']).nth(1).unwrap_or_default();
    if port.generates() {
        return Err(Error::Usage(format!(
            "{address} only sends\n  try af_xdp:{name} or af_packet:{name} to receive"
        )));
    }
    match port.cannot_receive() {
        Some(why) => Err(Error::Environment(format!(
            "{address} cannot receive: {why}\n  or try af_packet:{name}"
        ))),
        None => Err(Error::Usage(format!(
            "{address} cannot receive: it has no receive queue\n  try rx_queues=1"
        ))),
    }
}

/// The plan of a run, with its ports closed again.
pub struct Planned {
    pub plan: Plan,
    /// The facts about each port; `None`: it could not be opened, for the reason in the plan's
    /// notes.
    pub ports: Vec<Option<PortFacts>>,
    pub limits: Vec<PortLimits>,
    pub virtual_time: bool,
    /// The planned load of flows.
    pub load: Option<PlannedLoad>,
    /// A summary of the attacks; empty if there are none.
    pub attacks: String,
}

impl Planned {
    /// The output of `squall plan`: ports, workers, streams, flows, and the decoded `frames`, with
    /// their octets if `hex`.
    pub fn text(&self, profile: &Profile, frames: &[Preview], hex: bool) -> String {
        let port = |i: usize| ShownPort {
            address: self.ports[i].as_ref().map_or(&self.plan.ports[i].address, |f| &f.address),
            limits: &self.limits[i],
            arrival_times: self.ports[i].as_ref().map(|facts| facts.timestamps.name()),
        };
        let shown = Shown {
            plan: &self.plan,
            ports: (0..self.ports.len()).map(port).collect(),
            virtual_time: self.virtual_time,
            load: self.load.as_ref(),
            attacks: &self.attacks,
        };
        plan_text(profile, &shown, frames, hex)
    }
}

/// A run in progress.
pub struct Run {
    session: Resolved,
    running: Running,
    /// The profile's plan, without streams that were added or removed during the run. Shared with
    /// the engine until then.
    planned: Arc<Plan>,
    /// The profile's replays at the time when the run was opened.
    opened: Arc<[squall_profile::Replay]>,
    limits: Vec<PortLimits>,
    virtual_time: bool,
    context: Context,
    /// The agreed start, by the session's clock.
    agreed: Option<Nanos>,
    series: Series,
    last: Last,
    last_load: LastLoad,
    capturing: Option<Capturing>,
    passage: Option<attacking::PassageChecker>,
    labels: Option<attacking::LabelFile>,
    /// Why the run was stopped; empty if it was not.
    stopped_by: OnceLock<EndedBy>,
    /// When `abort_if` was last evaluated, and the criteria that held.
    evaluated: Instant,
    failed: Vec<String>,
    /// Whether this node has sent everything.
    sent_all: bool,
    expected: Asked,
    routers: Routers,
    /// Keeps the CPUs claimed until the workers have ended.
    _claim: Claim,
}

/// How long to receive after everything is sent, unless the options set it.
const LINGER: Duration = Duration::from_millis(200);

/// Number of streams from which on memory that reading and planning the profile have freed returns
/// to the system before the run: 100 MB for 100,000 streams. From as many on, the memory of a
/// finished run is freed on a thread of its own.
const MANY_STREAMS: usize = 10_000;

/// How often to evaluate `abort_if`. Each evaluation costs every worker a snapshot, so the interval
/// is that of a live view.
const WATCH_EVERY: Duration = Duration::from_millis(250);

/// How often a node that has sent everything checks whether the run is over.
const OTHERS_EVERY: Duration = Duration::from_millis(20);

/// Maximum number of streams and templates for which the live view has histograms. With more,
/// copying the histograms would disturb the run.
const WATCHED: usize = 64;

impl Session {
    pub fn new(profile: Profile) -> Self {
        Self { options: profile.run.clone(), profile, caller: Caller::default() }
    }

    /// Sets the options of the run. The profile's keys apply where options are missing.
    ///
    /// # Errors
    /// Invalid values.
    pub fn with(mut self, options: RunOptions) -> Result<Self, Error> {
        self.options = options.over(&self.profile.run);
        let Resolved { profile, options, caller, .. } = Resolved::unsolved(self)?;
        Ok(Self { profile, options, caller })
    }

    /// Sets the command that the report shows.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.caller.command = command.into();
        self
    }

    /// Merges the options and solves the profile's attacks, which is the first step of
    /// [`Session::open`]. `progress` gets the number of solved rules and their total. If it returns
    /// `false`, solving ends with an error.
    ///
    /// # Errors
    /// Errors in the profile; unreadable files; `progress` has returned `false`.
    pub fn resolve(
        self,
        progress: &(dyn Fn(usize, usize) -> bool + Sync),
    ) -> Result<Resolved, Error> {
        let mut resolved = Resolved::unsolved(self)?;
        if resolved.options.clock == Some(Clock::Virtual) {
            ports::use_virtual_time(&mut resolved.profile.ports);
        }
        let attacks = attacking::prepare(&resolved.profile, resolved.part(), progress)?;
        if let Some(mut attacks) = attacks {
            attacks.settle(&mut resolved.profile.ports);
            resolved.replays = attacks.replaying();
            resolved.attacks = Some(Arc::new(attacks));
        }
        Ok(resolved)
    }

    /// Compiles the plan without sending. A port that cannot be opened (no permission, no such
    /// interface) is planned from known facts about it.
    ///
    /// # Errors
    /// Errors in addresses or in the profile.
    pub fn plan_only(&self) -> Result<Planned, Error> {
        self.clone().resolve(&|_, _| true)?.planned()
    }

    /// Like [`Session::plan_only`], but opens no port and solves no attacks. Each port is planned
    /// from known facts about its interface.
    ///
    /// # Errors
    /// Errors in addresses or in the profile.
    pub fn check_only(&self) -> Result<Planned, Error> {
        self.check_unless(&|| false)
    }

    /// Like [`Session::check_only`], but ends early with an error if `is_cancelled` returns true.
    ///
    /// # Errors
    /// As for [`Session::check_only`].
    pub fn check_unless(&self, is_cancelled: &dyn Fn() -> bool) -> Result<Planned, Error> {
        Resolved::unsolved(self.clone())?.checked(is_cancelled)
    }

    /// Opens the ports and compiles the plan.
    ///
    /// # Errors
    /// Errors in addresses or in the profile; ports that cannot be opened.
    pub fn open(self) -> Result<Opened, Error> {
        self.resolve(&|_, _| true)?.open(&|| false)
    }
}

impl Resolved {
    /// Merges the options; does not solve attacks.
    fn unsolved(session: Session) -> Result<Self, Error> {
        let Session { mut profile, mut options, caller } = session;
        options.check().map_err(Error::Usage)?;
        let stop = &mut profile.stop;
        stop.duration = options.duration.take().map(|time| time.0).or(stop.duration);
        stop.packets = options.packets.take().map(|count| count.0).or(stop.packets);
        stop.octets = options.octets.take().map(|octets| octets.0).or(stop.octets);
        profile.seed = options.seed.take().or(profile.seed);
        if stop.duration.is_some_and(|time| Picos::from(time) > Picos::LONGEST_RUN) {
            return Err(Error::Usage(
                "the duration is too long: a run ends after 106 days\n  try a shorter one".into(),
            ));
        }
        let criterion = |text: &String| {
            FailIf::parse_abort(text)
                .map_err(|error| Error::Usage(format!("abort_if = {text:?}: {error}")))
        };
        let criteria = options.abort_if.iter().flatten().map(criterion);
        Ok(Self {
            named: named(&profile),
            criteria: criteria.collect::<Result<_, _>>()?,
            capture: options.capture.as_ref().map(|of| Capture::of(of, &profile)).transpose()?,
            flows: settings::of(options.received_flows.as_ref())?,
            names: Names::default(),
            attacks: None,
            replays: Vec::new(),
            key_log: None,
            routes_csv: None,
            profile,
            options,
            caller,
        })
    }

    /// The profile's attacks; `None` if it has none.
    pub fn attacks(&self) -> Option<&Prepared> {
        self.attacks.as_deref()
    }

    /// Whether the ports receive as well as send.
    fn receives(&self) -> bool {
        self.options.receive.unwrap_or(true)
    }

    /// Whether existing files may be overwritten, and disks filled.
    fn forces(&self) -> bool {
        self.options.force.unwrap_or(false)
    }

    fn cpus(&self) -> Option<&[u32]> {
        self.options.cpus.as_ref().map(|cpus| &*cpus.0)
    }

    /// Like [`Session::check_unless`].
    fn checked(&self, is_cancelled: &dyn Fn() -> bool) -> Result<Planned, Error> {
        let (mut limits, notes) =
            self.each_port(|port, _| Ok((ports::known(&port.address)?, Vec::new())))?;
        let virtual_time = self.settle(&mut limits);
        let mut plan = self.compile_for(&limits, None, None, false, is_cancelled)?;
        plan.notes.splice(0..0, notes);
        let load = plan.explain_flows(&self.profile);
        let ports = vec![None; limits.len()];
        Ok(Planned { plan, ports, limits, virtual_time, load, attacks: String::new() })
    }

    fn planned(&self) -> Result<Planned, Error> {
        let (mut ports, mut generate) = (Vec::new(), Vec::new());
        let (mut limits, notes) = self.each_port(|port, wanted| {
            match ports::open(&port.address, wanted).map_err(Error::from) {
                Ok((opened, limit, note)) => {
                    if opened.generates() {
                        generate.push(ports.len());
                    }
                    ports.push(Some(opened.facts().clone()));
                    Ok((limit, note))
                }
                Err(Error::Environment(why)) => {
                    ports.push(None);
                    let note =
                        format!("port {}: not opened, typical values assumed: {why}", port.name);
                    Ok((ports::assumed(&port.address), vec![note]))
                }
                Err(error) => Err(error),
            }
        })?;
        let virtual_time = self.settle(&mut limits);
        let mut plan = self.compile(&limits, virtual_time, &|| false)?;
        for port in generate {
            squall_engine::can_be_generated(&plan, port, &plan.ports[port].address)
                .map_err(|error| Error::Usage(error.to_string()))?;
        }
        plan.notes.splice(0..0, notes);
        let load = plan.explain_flows(&self.profile);
        let attacks = self.attacks.as_ref().map(|attacks| attacks.summary()).unwrap_or_default();
        Ok(Planned { plan, ports, limits, virtual_time, load, attacks })
    }

    /// The limits of every port, and notes for the user.
    fn each_port(
        &self,
        mut look: impl FnMut(&squall_profile::Port, Wanted) -> Result<(PortLimits, Vec<String>), Error>,
    ) -> Result<(Vec<PortLimits>, Vec<String>), Error> {
        let (mut limits, mut notes) = (Vec::new(), Vec::new());
        for (i, port) in self.profile.ports.iter().enumerate() {
            let (limit, note) =
                look(port, self.wanted(i)).map_err(|error| self.at_port(error, port))?;
            limits.push(limit);
            // List a note shared by several ports only once.
            notes.extend(note.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
        }
        Ok((limits, notes))
    }

    /// The part of the profile that this process sends.
    fn part(&self) -> Division {
        self.options.part.unwrap_or_default().0
    }

    /// The attack that runs on Squall's own TCP/UDP stack, because of its networks.
    fn live_attack(&self) -> Option<&squall_profile::Attack> {
        self.attacks.as_ref()?.speaker(&self.profile)
    }

    /// Whether captures are replayed on `port`.
    fn replays_on(&self, port: usize) -> bool {
        let mut replays = self.profile.replays.iter();
        self.replays.iter().any(|replay| replay.ports.contains(&port))
            || replays.any(|replay| replay.port == port || replay.port2 == Some(port))
    }

    /// How the session uses port `i` of the profile.
    fn wanted(&self, i: usize) -> Wanted {
        let speaks = |port| {
            self.live_attack()
                .is_some_and(|attack| attack.port == port || attack.port2 == Some(port))
        };
        let flows =
            |port| self.profile.flows.as_ref().is_some_and(|flows| flows.ports().contains(&port));
        let hosts = |port| {
            let profile = &self.profile;
            profile.hosts.iter().any(|group| group.port == port)
                || profile.routers.iter().any(|router| router.port == port)
        };
        let plays = |port| flows(port) || speaks(port) || hosts(port);
        let streams = |port| self.profile.streams.iter().any(|s| s.port == port);
        let sends = |port| self.replays_on(port) || streams(port) || plays(port);
        let to = match (sends(i), self.receives() || plays(i)) {
            (true, true) => Use::Both,
            (true, false) => Use::Send,
            (false, _) => Use::Receive,
        };
        let sending = (0..self.profile.ports.len()).filter(|&port| sends(port)).count().max(1);
        let cuts = self.profile.streams.iter().any(|s| s.port == i && s.segment.is_some());
        let workers = self.options.cores.map_or(1, |cores| cores.div_ceil(sending) as u32);
        // A port that several sources share has a single worker.
        let alone = plays(i) && !self.replays_on(i) && !streams(i);
        Wanted { to, cuts, answers: plays(i), workers, players: if alone { workers } else { 1 } }
    }

    /// Applies the session's settings for time and receiving to `limits`. Returns whether the run
    /// is on virtual time.
    fn settle(&self, limits: &mut [PortLimits]) -> bool {
        let addresses = self.profile.ports.iter().map(|port| port.address.as_str());
        let requested = addresses.zip(limits.iter().map(|limit| limit.virtual_time));
        let virtual_time = match self.options.clock {
            Some(clock) => clock == Clock::Virtual,
            None => ports::on_virtual_time(requested),
        };
        for (i, limit) in limits.iter_mut().enumerate() {
            limit.virtual_time = virtual_time;
            if !self.receives() && !self.wanted(i).answers {
                limit.rx_queues = 0;
            }
        }
        virtual_time
    }

    /// Like [`Session::open`], but ends early with an error if `is_cancelled` returns true:
    /// planning a million streams takes several seconds.
    ///
    /// # Errors
    /// As for [`Session::open`].
    pub fn open(mut self, is_cancelled: &dyn Fn() -> bool) -> Result<Opened, Error> {
        let (mut ports, mut take, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        let (mut limits, notes) = self.each_port(|port, wanted| {
            if self.capture.is_some() {
                bypass::check(&port.address).map_err(Error::Usage)?;
            }
            let (mut opened, limit, note) = ports::open(&port.address, wanted)?;
            if wanted.to != Use::Receive
                && bypass::bypasses_taps(opened.facts().kind, &port.address)
            {
                marks.extend(ports::interface_of(&port.address).as_deref().and_then(bypass::mark));
            }
            if (wanted.to == Use::Receive && self.receives()) || wanted.answers {
                receives(&port.address, opened.as_ref())?;
            }
            let filter = match filter_of(
                self.options.filter.as_deref(),
                self.capture.as_ref(),
                opened.facts(),
            )? {
                Some(filter) => {
                    let taken = opened
                        .set_filter(&filter)
                        .map_err(|error| Error::Environment(error.to_string()))?;
                    (!taken).then_some(filter)
                }
                None => None,
            };
            take.push(Take { filter, link: opened.facts().link_type.into(), sinks: Vec::new() });
            ports.push(opened);
            Ok((limit, note))
        })?;
        let virtual_time = self.settle(&mut limits);
        if self.caller.key.is_none() && self.is_new_run(&limits, virtual_time) {
            self.caller.key = Some(new_key());
        }
        let (mut plan, claim) = self.claim(&limits, virtual_time, is_cancelled)?;
        if self.caller.ends_process {
            free(plan.streams.len(), std::mem::take(&mut self.profile.streams));
        } else if plan.streams.len() >= MANY_STREAMS {
            squall_port_linux::trim_heap();
        }
        if let Some(path) = &self.options.key_log {
            let log = key_log(path, &plan)?;
            plan.log_keys(&log);
            self.key_log = Some(log);
        }
        let surveys = squall_plan::survey(&plan, &limits).map_err(Error::Usage)?;
        let permits = room::permits(&plan, &ports, &surveys, self.forces())?;
        ports.iter_mut().zip(permits).for_each(|(port, permit)| port.permit(permit));
        let readers = readers(&plan, &limits)?;
        let again = self.profile.flows.as_ref().and_then(|flows| flows.replay.as_ref());
        let for_ever = again.is_some_and(|again| again.loops == 0);
        let at_once = |one: &PlanReplay| {
            one.replay.loops == 0 && one.replay.limit.is_none() && one.replay.timing == Timing::Top
        };
        let counted = self.profile.stop.packets.is_some() || self.profile.stop.octets.is_some();
        if virtual_time && !counted && plan.replays.iter().any(at_once) {
            return Err(Error::Usage(
                "on virtual time (files) a replay at full speed takes no time, so without an end \
                 it never ends\n  try loops = 1, limit = 1000 or a rate"
                    .into(),
            ));
        }
        let for_ever = for_ever || plan.replays.iter().any(PlanReplay::is_endless);
        let endless = plan.streams.iter().any(|s| s.is_endless()) || has_cycle(&plan) || for_ever;
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
        let labels =
            self.options.labels.as_ref().map(|path| attacking::create(path)).transpose()?;
        if let Some(path) = &self.options.routes_csv {
            self.routes_csv = Some(Arc::new(routes_file(path, &plan)?));
        }
        Ok(Opened {
            session: self,
            ports,
            limits,
            plan,
            claim,
            virtual_time,
            take,
            readers,
            labels,
        })
    }

    /// Whether signatures need a new key that no earlier run had. They do on real time, unless a
    /// seed fixes the octets or other processes send a share of the same streams.
    fn is_new_run(&self, limits: &[PortLimits], virtual_time: bool) -> bool {
        let alone = self.part().is_whole() && !limits.iter().any(|limit| limit.elsewhere);
        !virtual_time && self.profile.seed.is_none() && alone
    }

    /// Compiles the plan and claims its CPUs. If another run has claimed some of them meanwhile,
    /// tries again without these.
    fn claim(
        &self,
        limits: &[PortLimits],
        virtual_time: bool,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(Plan, Claim), Error> {
        loop {
            let plan = self.compile(limits, virtual_time, is_cancelled)?;
            if let Ok(claim) = Claim::of(&plan, self.cpus().is_some()) {
                return Ok((plan, claim));
            }
        }
    }

    fn compile(
        &self,
        limits: &[PortLimits],
        virtual_time: bool,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Plan, Error> {
        let pin = match virtual_time {
            true => None,
            false => Some(cpus::choose(self.cpus(), self.options.cores)?),
        };
        self.compile_for(limits, pin, None, true, is_cancelled)
    }

    /// `opened`: the profile's replays when the run began. `look_up`: whether to resolve host
    /// names.
    fn compile_for(
        &self,
        limits: &[PortLimits],
        pin: Option<Vec<Cpu>>,
        opened: Option<&[squall_profile::Replay]>,
        look_up: bool,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Plan, Error> {
        let options = Options {
            cores: self.options.cores.or(self.cpus().map(<[u32]>::len)),
            cpus: squall_machine::cpus_here(),
            memory: memory(),
            pin,
            multiplier: self.options.mult,
            part: self.part(),
        };
        let inputs = Inputs {
            assets: &Disk(Path::new(&self.profile.origin).parent().unwrap_or(Path::new(""))),
            replays: self.replays.clone(),
            opened,
            live_flows: self.attacks.as_ref().and_then(|attacks| attacks.live_flows(&self.profile)),
            is_cancelled,
        };
        let (profile, notes) = self.names.resolved(&self.profile, look_up)?;
        let mut plan = squall_plan::compile(&profile, limits, inputs, &options)?;
        if let Some(key) = self.caller.key {
            plan = plan.keyed(key);
        }
        if let Some(log) = &self.key_log {
            plan.log_keys(log);
        }
        plan.notes.splice(0..0, notes);
        Ok(plan)
    }

    /// Adds the port's position in the profile to an error in its address.
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
            // Do not add the name if the message already begins with it, which is so if the name
            // equals the address.
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

/// This machine's memory in octets; 0: unknown. Read once, because a change of a run must find the
/// same limit of flows, also if the memory of a virtual machine has grown meanwhile.
fn memory() -> u64 {
    static MEMORY: OnceLock<u64> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        squall_capture::machine_memory().unwrap_or(0).min(memory_limit().unwrap_or(u64::MAX))
    })
}

/// The lowest memory limit of the control groups (version 2) of this process, in octets.
fn memory_limit() -> Option<u64> {
    let limits = squall_machine::of_control_groups("memory.max");
    // "max" is no limit.
    limits.iter().filter_map(|limit| limit.trim().parse().ok()).min()
}

/// A random key that differs from those of files and of runs with the default seed.
fn new_key() -> u16 {
    // `RandomState` is seeded from the system's random numbers.
    let random = RandomState::new().build_hasher().finish();
    (random % 0xffff) as u16 + 1
}

/// Names and addresses of the profile's ports.
fn named(profile: &Profile) -> Vec<(String, String)> {
    profile.ports.iter().map(|port| (port.name.clone(), port.address.clone())).collect()
}

/// Creates the file for the routes of streams.
fn routes_file(path: &Path, plan: &Plan) -> Result<File, Error> {
    let measured =
        |stream: &PlanStream| stream.routes.is_some() && stream.program.signature().is_some();
    if !plan.streams.iter().any(measured) {
        return Err(Error::Usage(format!(
            "{}: no stream with latency = true goes to the routes of a router\n  try dst = \
             \"routes:NAME\" in [[stream]]",
            path.display()
        )));
    }
    Ok(File::create(path).map_err(|error| Cannot::write(path, &error))?)
}

/// Creates the file for the secrets of TLS sessions.
fn key_log(path: &Path, plan: &Plan) -> Result<KeyLog, Error> {
    if !plan.has_tls() {
        return Err(Error::Usage(format!(
            "{}: no flows of the profile use TLS\n  try tls = true in [[template]], --tls, or a \
             URL with https",
            path.display()
        )));
    }
    Ok(KeyLog::create(path).map_err(|error| Cannot::write(path, &error))?)
}

/// Opens a reader for each replay's captures.
fn readers(plan: &Plan, limits: &[PortLimits]) -> Result<Vec<Reader>, Error> {
    let reader = |replay: &PlanReplay| {
        let longest = replay.ports.iter().map(|&port| limits[port].max_frame).collect();
        Ok(Reader::open(replay.replay.clone(), longest)?)
    };
    plan.replays.iter().filter(|replay| replay.is_here()).map(reader).collect()
}

/// Whether streams start each other in an endless cycle.
fn has_cycle(plan: &Plan) -> bool {
    let follow = |i: usize| plan.streams[i].next.filter(|n| n.times.is_none()).map(|n| n.stream);
    // From which stream each stream was reached first. A chain that ends at a stream of an earlier
    // chain is no cycle; one that ends at a stream of its own is.
    let mut reached_from = vec![None; plan.streams.len()];
    (0..plan.streams.len()).any(|first| {
        let mut at = Some(first);
        while let Some(i) = at.filter(|&i| reached_from[i].is_none()) {
            reached_from[i] = Some(first);
            at = follow(i);
        }
        at.is_some_and(|i| reached_from[i] == Some(first))
    })
}

/// Reads files relative to the profile's directory.
struct Disk<'a>(&'a Path);

impl Assets for Disk<'_> {
    fn file(&self, path: &str) -> io::Result<Vec<u8>> {
        squall_profile::read_file(path)
    }

    fn payload(&self, path: &str) -> io::Result<Vec<u8>> {
        squall_profile::read_file(self.0.join(path))
    }

    fn table(&self, path: &str) -> io::Result<Box<dyn io::Read>> {
        let file = io::BufReader::new(File::open(self.0.join(path))?);
        Ok(Box::new(squall_pcap::decompressed(file)?))
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

    fn capture(&self, path: &str) -> Input {
        squall_replay::input(Path::new(path))
    }

    fn conversations(
        &self,
        path: &str,
        filter: Option<&str>,
        options: &ImportOptions,
    ) -> Result<Import, String> {
        squall_offline::import::conversations_where(Path::new(path), filter, options)
            .map_err(|error| error.to_string())
    }

    fn filter(&self, expression: &str) -> Result<squall_bpf::classic::Filter, String> {
        let filter = squall_port_linux::filter::compile_file(expression, squall_port::ETHERNET);
        filter.map(|filter| filter.program.clone()).map_err(|error| error.to_string())
    }
}

impl Opened {
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn virtual_time(&self) -> bool {
        self.virtual_time
    }

    /// The facts about the ports, in profile order.
    pub fn facts(&self) -> impl Iterator<Item = &squall_port::PortFacts> {
        self.ports.iter().map(|p| p.facts())
    }

    /// Checks that the run has the stream, template or group of hosts that a criterion names, and
    /// measures its streams if the criterion needs that. A run that only receives, or that measures
    /// received flows, learns names later, so any name is accepted.
    ///
    /// # Errors
    /// None has that name; the error suggests the most similar one. Or no stream is measured.
    pub fn check(&self, criterion: &FailIf) -> Result<(), Error> {
        if self.plan.only_receives() || self.session.flows.is_some() {
            return Ok(());
        }
        let templates = self.plan.flows.iter().flat_map(|flows| &flows.load.templates);
        let streams = self.plan.streams.iter().map(|stream| stream.name.as_str());
        let hosts = self.plan.hosts.iter().map(|group| group.name.as_str());
        let templates = templates.map(|one| one.name.as_str());
        let names: Vec<_> = streams.chain(templates).chain(hosts).collect();
        criterion.find_names(&names).map_err(Error::Usage)?;
        // A capture has its own loss. With several nodes, others may measure the streams.
        let elsewhere = self.session.capture.is_some() || self.plan.has_other_nodes();
        if elsewhere || !criterion.needs_receiver() {
            return Ok(());
        }
        let why = if !self.plan.streams.iter().any(|stream| stream.program.is_known()) {
            "no stream is measured\n  try --latency, or latency = true on a stream of the profile"
        } else if self.plan.workers.iter().all(|worker| worker.rx.is_empty()) {
            "nothing is received\n  try --to ADDR, or another port in the profile"
        } else {
            return Ok(());
        };
        Err(Error::Usage(format!("cannot evaluate {criterion}: {why}")))
    }

    /// Starts the workers. The first frame is due 5 to 20 ms later, plus 3 us for each stream.
    ///
    /// # Errors
    /// A queue cannot be opened.
    pub fn start(self) -> Result<Run, Error> {
        Ok(self.hold()?.go(None))
    }

    /// Opens the queues without sending: nothing is sent before [`Held::go`].
    ///
    /// # Errors
    /// A queue cannot be opened.
    pub fn hold(mut self) -> Result<Held, Error> {
        self.check_stamps()?;
        self.session.criteria.iter().try_for_each(|criterion| self.check(criterion))?;
        let capture = self.session.capture.as_ref();
        let options = &self.session.options;
        let filter = options.filter.as_deref();
        let fingerprint = options.fingerprint.unwrap_or(false);
        let capturing = capture
            .map(|c| {
                let how = (self.virtual_time, self.session.forces());
                Capturing::start(c, &self.ports, filter, how)
            })
            .transpose()?;
        if let Some(capturing) = &capturing {
            self.take
                .iter_mut()
                .enumerate()
                .for_each(|(i, take)| take.sinks.push(capturing.sinks(i)));
        }
        for (port, listener) in &self.session.caller.listeners.0 {
            self.take[*port].sinks.push(listener.clone());
        }
        let (limits, ports) = (&self.limits, &self.ports);
        let receives = |port: usize| {
            limits[port].rx_queues > 0 && !matches!(ports[port].facts().kind, "null" | "pcap")
        };
        let passage = self
            .session
            .attacks
            .as_ref()
            .and_then(|attacks| attacks.listen(&mut self.take, receives));
        let flows = self.session.flows.clone().map(|flows| FlowSettings {
            wall: (!self.virtual_time).then(squall_machine::wall_offset),
            restarts: self.plan.only_receives(),
            ..flows
        });
        let settings = Settings {
            virtual_time: self.virtual_time,
            fingerprint,
            measure: Measure {
                count_only: capturing.is_some()
                    && flows.is_none()
                    && !self.session.capture.as_ref().is_some_and(|c| c.measured),
                fingerprint,
                gap_bins: options.gap_bins.map(|gaps| EqualBins::new(gaps.bins, gaps.width.0.0)),
                flows: flows.clone(),
                places: self.session.caller.places.clone(),
                trex: Some(Arc::default()),
                // The engine applies the plan's key and routes itself.
                key: None,
                lanes: Arc::default(),
            },
            take: self.take,
            linger: options.linger.map_or(LINGER, Duration::from),
            common: self.session.caller.clock.map(common).unwrap_or_default(),
            tolerance: {
                let duration =
                    self.plan.stop.duration.map_or(0.0, |duration| duration.as_secs_f64());
                Nanos((verdict::behind(duration) * 1e9) as u64)
            },
            precision: match options.precision.unwrap_or_default() {
                Precision::LowCpu => squall_engine::Precision::LowCpu,
                Precision::Balanced => squall_engine::Precision::Balanced,
                Precision::Spin => squall_engine::Precision::Spin,
            },
        };
        let context = Context {
            started: SystemTime::now(),
            host: squall_machine::host(),
            usage: usage(),
            command: self.session.caller.command.clone(),
            fingerprint,
            filter: options.filter.clone().filter(|text| !text.trim().is_empty()),
            flows,
            node: self.session.caller.node.clone(),
            clock: self.session.caller.clock,
        };
        let (routers, links) = Routers::start(&self.plan)?;
        let plan = Arc::new(self.plan);
        let ready = squall_engine::ready(plan.clone(), self.ports, settings, self.readers, links);
        let ready = ready.map_err(|e| match e {
            squall_engine::EngineError::Port { error, .. }
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::AlreadyExists
                ) =>
            {
                Error::Usage(error.to_string())
            }
            other => Error::Engine(other),
        })?;
        Ok(Held {
            session: self.session,
            ready,
            planned: plan,
            limits: self.limits,
            virtual_time: self.virtual_time,
            context,
            capturing,
            passage,
            labels: self.labels,
            routers,
            claim: self.claim,
        })
    }

    /// Refuses a shared clock on ports that generate their frames themselves, because these put the
    /// machine's own time into frames.
    fn check_stamps(&self) -> Result<(), Error> {
        let makes = |stream: &squall_plan::PlanStream| {
            stream.program.signature().is_some() && self.ports[stream.port].generates()
        };
        match self.plan.streams.iter().find(|stream| makes(stream)) {
            Some(stream) if self.session.caller.clock.is_some() => Err(Error::Usage(format!(
                "stream {:?}: port {} stamps its frames by the clock of this machine, not by that \
                 of the cluster\n  try af_xdp or af_packet, or latency = false",
                stream.name, self.plan.ports[stream.port].address
            ))),
            _ => Ok(()),
        }
    }
}

/// Converts a shared clock to the engine's form.
fn common(clock: NodeClock) -> CommonClock {
    CommonClock { shift_ns: clock.shift_ns, drift_ppb: clock.drift_ppb, at: Nanos(clock.at_ns) }
}

/// A run whose queues are open, and which waits for its start.
pub struct Held {
    session: Resolved,
    ready: squall_engine::Ready,
    planned: Arc<Plan>,
    limits: Vec<PortLimits>,
    virtual_time: bool,
    context: Context,
    capturing: Option<Capturing>,
    passage: Option<attacking::PassageChecker>,
    labels: Option<attacking::LabelFile>,
    routers: Routers,
    claim: Claim,
}

impl Held {
    /// Starts the run. The first frame is due at `at` on the session's clock; `None`: 5 to 20 ms
    /// from now. If `at` has passed, the run catches up with the overdue frames.
    pub fn go(self, at: Option<Nanos>) -> Run {
        let local = at.map(|at| self.local(at));
        self.begin(local, at)
    }

    /// Starts the run far in the future, so it can be stopped before anything is due.
    pub fn give_up(self) -> Run {
        const LONG: Nanos = Nanos(3_600_000_000_000);
        self.begin(Some(squall_port::monotonic() + LONG), None)
    }

    /// `local`: the start on the engine's clock; `agreed`: the same on the session's clock.
    fn begin(self, local: Option<Nanos>, agreed: Option<Nanos>) -> Run {
        let context = Context { started: SystemTime::now(), usage: usage(), ..self.context };
        let running = self.ready.go(local);
        self.routers.begin(running.start());
        Run {
            opened: self.session.profile.replays.clone().into(),
            session: self.session,
            running,
            planned: self.planned,
            limits: self.limits,
            virtual_time: self.virtual_time,
            context,
            agreed: agreed.filter(|_| !self.virtual_time),
            series: Series::default(),
            last: Last::at(Instant::now()),
            last_load: LastLoad::at(Instant::now()),
            capturing: self.capturing,
            passage: self.passage,
            labels: self.labels,
            stopped_by: OnceLock::new(),
            evaluated: Instant::now(),
            failed: Vec::new(),
            sent_all: false,
            expected: Asked::default(),
            routers: self.routers,
            _claim: self.claim,
        }
    }

    /// Converts `at` from the session's clock to the engine's.
    pub fn local(&self, at: Nanos) -> Nanos {
        self.session.caller.clock.map(common).unwrap_or_default().local(at)
    }

    pub fn set_clock(&mut self, clock: NodeClock) {
        self.ready.set_common_clock(common(clock));
        self.session.caller.clock = Some(clock);
        self.context.clock = Some(clock);
    }
}

impl Run {
    pub fn plan(&self) -> &Plan {
        self.running.plan()
    }

    /// The current profile, including changes made during the run.
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

    /// Waits until all frames are sent, at most `timeout`. Returns whether they are. If other nodes
    /// send frames that may arrive here, waits until the run's duration is over, or if it has no
    /// duration, until the run is stopped.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        let mut left = timeout;
        loop {
            self.watch();
            let part = if self.session.criteria.is_empty() { left } else { left.min(WATCH_EVERY) };
            left -= part;
            self.sent_all = self.running.wait_sent(part);
            let done = self.sent_all && !self.expects_others();
            if self.sent_all && !done {
                std::thread::sleep(part.min(OTHERS_EVERY));
                left += part.saturating_sub(OTHERS_EVERY);
            }
            if done || left.is_zero() {
                return done;
            }
        }
    }

    /// Whether this node has sent all of its frames.
    pub fn sent_all(&self) -> bool {
        self.sent_all
    }

    /// Whether other nodes may still send frames that arrive here.
    fn expects_others(&self) -> bool {
        let plan = self.running.plan();
        let receives = plan.workers.iter().any(|worker| !worker.rx.is_empty());
        let time = |end: Nanos| self.running.elapsed() < end;
        plan.others_send()
            && receives
            && !self.virtual_time
            && self.stopped_by.get().is_none()
            && plan.stop.duration.is_none_or(time)
    }

    /// Stops the run if a criterion of `abort_if` holds. This costs every worker a snapshot, as a
    /// live view does.
    fn watch(&mut self) {
        let over = self.stopped_by.get().is_some();
        if over || self.session.criteria.is_empty() || self.evaluated.elapsed() < WATCH_EVERY {
            return;
        }
        self.evaluated = Instant::now();
        let full = self.session.criteria.iter().any(FailIf::needs_histograms);
        let report = self.record_so_far(self.running.snapshot(full)).report(Vec::new());
        self.failed
            .extend(self.session.criteria.iter().filter_map(|one| one.holds_so_far(&report)));
        if !self.failed.is_empty() {
            self.stop_because(EndedBy::Criterion);
        }
    }

    /// Whether a criterion of `abort_if` ended the run.
    pub fn aborted(&self) -> bool {
        self.stopped_by.get() == Some(&EndedBy::Criterion)
    }

    /// Frames received so far, on all ports.
    pub fn received(&self) -> u64 {
        let snapshots = self.running.snapshot(false);
        if let Some(capturing) = &self.capturing {
            capturing.tell(&self.running.interfaces(), &snapshots);
        }
        snapshots.iter().flat_map(|s| &s.rx).map(|rx| rx.seen.packets).sum()
    }

    /// Whether all receiving ports are lost. The report has the reasons.
    pub fn receives_nothing_more(&self) -> bool {
        let snapshots = self.running.snapshot(false);
        let mut queues = snapshots.iter().flat_map(|s| &s.rx).peekable();
        queues.peek().is_some() && queues.all(|queue| queue.error.is_some())
    }

    /// Whether the capture has ended or failed; false if there is no capture.
    pub fn captured(&self) -> bool {
        self.capturing.as_ref().is_some_and(Capturing::is_over)
    }

    /// Triggers the capture.
    pub fn trigger(&self) {
        self.capturing.iter().for_each(Capturing::trigger);
    }

    /// Whether the run sends nothing: [`Profile::listening`].
    pub fn listening(&self) -> bool {
        self.running.plan().only_receives()
    }

    /// The rates since the last call, and the report so far. Each call adds a point to the report's
    /// time series.
    pub fn sample(&mut self) -> (Sample, Report) {
        self.watch();
        let flows = self.running.plan().flows.clone();
        let templates = flows.as_ref().map_or(0, |flows| flows.load.templates.len());
        let full = self.running.stream_names().count() + templates <= WATCHED;
        let snapshots = self.running.snapshot(full);
        let now = Instant::now();
        let stats = snapshots.iter().flat_map(|snapshot| &snapshot.flows);
        let loading = flows.as_ref().map(|flows| self.last_load.sample(now, &flows.load, stats));
        let mut last = std::mem::replace(&mut self.last, Last::at(now));
        let record = self.record_so_far(snapshots);
        let report = record.report(Vec::new());
        let mut sample = record.sample(&mut last, &report, now);
        self.last = last;
        sample.flows = loading.unwrap_or_default();
        // Series for thousands of streams would be unreadable and large.
        let streams = if full { sample.streams.clone() } else { Vec::new() };
        self.add_point(Sample {
            streams,
            flows: sample.flows.clone(),
            ports: sample.ports.clone(),
            capture: sample.capture.clone(),
            ..sample
        });
        (sample, report)
    }

    /// Adds the same point to the report's time series as [`Run::sample`], for a run without a
    /// view. With thousands of streams this costs a fraction, because the series does not have
    /// them.
    pub fn tick(&mut self) {
        let many = self.running.stream_names().count() > WATCHED;
        if !many || self.capturing.is_some() {
            self.sample();
            return;
        }
        self.watch();
        let snapshots = self.running.snapshot_of_ports();
        let (plan, now, elapsed) =
            (self.running.plan().clone(), Instant::now(), self.running.elapsed());
        let stats = snapshots.iter().flat_map(|snapshot| &snapshot.flows);
        let flows = plan.flows.as_ref().map(|flows| self.last_load.sample(now, &flows.load, stats));
        let sample = self.last.sample_ports(&plan, &snapshots, (elapsed, now));
        self.add_point(Sample { flows: flows.unwrap_or_default(), ..sample });
    }

    fn add_point(&mut self, mut point: Sample) {
        if point.flows.len() > WATCHED {
            point.flows.retain(|row| row.name == ALL);
        }
        self.series.push(point);
    }

    fn record_so_far(&self, snapshots: Vec<squall_engine::Snapshot>) -> Record<'_> {
        let mut daemons = self.routers.states();
        daemons.extend(native_states(&snapshots));
        Record {
            context: &self.context,
            plan: self.running.plan(),
            counted: self.counted(true, snapshots),
            start: self.running.start(),
            duration: self.running.elapsed(),
            interfaces: Vec::new(),
            links: self.running.links(),
            pacing: self.running.pacing(false),
            usage: usage(),
            capture: self.capturing.as_ref().map(Capturing::so_far),
            daemons,
            end: None,
        }
    }

    fn counted(&self, running: bool, snapshots: Vec<squall_engine::Snapshot>) -> Counted {
        Counted::new(self.running.plan(), self.facts(), running, snapshots)
    }

    fn facts(&self) -> Vec<PortFacts> {
        let ports = self.running.plan().ports.len();
        (0..ports).map(|port| self.running.port_facts(port).clone()).collect()
    }

    /// The points of the report's time series so far.
    pub fn series(&self) -> &[Sample] {
        &self.series.points
    }

    /// Pauses a stream, the streams of a group, a template, a replay, or all sources. Frames that
    /// are due meanwhile are postponed. A paused template begins no flows, and its open flows
    /// continue.
    ///
    /// # Errors
    /// An unknown name.
    pub fn pause(&self, stream: Option<&str>) -> Result<(), Error> {
        Ok(self.running.pause(stream)?)
    }

    /// Resumes the sources that [`Run::pause`] paused.
    ///
    /// # Errors
    /// An unknown name.
    pub fn resume(&self, stream: Option<&str>) -> Result<(), Error> {
        Ok(self.running.resume(stream)?)
    }

    /// Carries out an order of a router at once. `order` is the table of a step without times:
    /// `{"action": "withdraw", "group": "edge", "count": 100}`. The report has it among the
    /// router's steps, with its error, if the daemon cannot carry it out.
    ///
    /// # Errors
    /// Errors in the order, or there is no such router, or it does not have what the order names,
    /// or its daemon has ended.
    pub fn order(&self, router: &str, order: &serde_json::Value) -> Result<(), Error> {
        let order = RouterStep::order(order, &format!("order for router {router:?}"))?;
        if self.stopped_by.get().is_some() {
            return Err(Error::Usage(format!(
                "router {router:?}: the run was stopped, and takes no more orders"
            )));
        }
        self.routers.order(&self.running, router, &order)
    }

    /// Changes the run to another profile.
    ///
    /// Streams with the same name and frames continue at their new rate; others are added or
    /// removed. Duration, packets and octets still count from the start of the run. The ports must
    /// be the same, and frames must be no longer than at the start of the run.
    ///
    /// In templates, rates may differ (`cps`, `weight`, `users`, `active_limit`, and the target of
    /// `[flows]`), and so may `drain`. Templates are matched by name. New ones begin after their
    /// own `start`. Open flows of missing ones are aborted, and their counters stay in the report.
    /// New and missing templates are possible in loads without a total, a limit of flows or a
    /// capture, and for servers that no other template shares.
    ///
    /// # Errors
    /// Errors in the profile, in which case nothing changes.
    pub fn change(&mut self, mut profile: Profile) -> Result<(), Error> {
        if named(&profile) != self.session.named {
            return Err(Error::Usage("ports cannot change during a run\n  try a new run".into()));
        }
        profile.ports.clone_from(&self.session.profile.ports);
        self.become_profile(profile)
    }

    /// Sets all rates to `by` times those in the profile. Flows accept only a factor.
    ///
    /// # Errors
    /// As for [`Run::change`]. Also, a run that has only attacks cannot change.
    pub fn multiply(&mut self, by: Multiplier) -> Result<(), Error> {
        let profile = &self.session.profile;
        let replays = self.planned.replays.iter().any(|replay| !replay.fixed);
        if profile.streams.is_empty() && profile.flows.is_none() && !replays {
            return Err(Error::Usage(
                "the rate of attacks cannot change during a run\n  try a new run".into(),
            ));
        }
        let mut session = self.session.clone();
        session.options.mult = Some(by);
        self.become_session(session)
    }

    /// The factor on all rates; `None`: the rates are those in the profile.
    pub fn multiplier(&self) -> Option<Multiplier> {
        self.session.options.mult
    }

    /// Multiplies all current rates by `num / den`. For flows, see [`Run::multiply`].
    ///
    /// # Errors
    /// As for [`Run::change`].
    pub fn scale(&mut self, num: u64, den: u64) -> Result<(), Error> {
        let now = self.session.options.mult.unwrap_or(Multiplier::Factor { num: 1, den: 1 });
        let by =
            now.times(num, den).ok_or_else(|| Error::Usage("the rate is out of range".into()))?;
        self.multiply(by)
    }

    /// Sets how often flows of `template` begin; `None`: flows of all templates that have a weight.
    /// The kind of the amount must be that in the profile.
    ///
    /// # Errors
    /// The template is unknown, or the amount is of another kind.
    pub fn set_load(&mut self, template: Option<&str>, amount: Amount) -> Result<(), Error> {
        let mut profile = self.session.profile.clone();
        let Some(flows) = &mut profile.flows else {
            return Err(Error::Usage("a run without templates has no load".into()));
        };
        let Some(name) = template else {
            amount.put_into(&mut flows.target)?;
            return self.become_profile(profile);
        };
        let known: Vec<_> = flows.templates.iter().map(|template| template.name.clone()).collect();
        match flows.templates.iter_mut().find(|template| template.name == name) {
            Some(template) => {
                let before = template.arrival;
                amount.put(name, &mut template.arrival)?;
                // Stages are relative to the amount.
                let by = template.arrival.amount() / before.amount();
                template.stages.iter_mut().for_each(|stage| stage.to *= by);
            }
            None => {
                let hint = squall_units::suggest(name, known.iter().map(String::as_str));
                return Err(Error::Engine(squall_engine::EngineError::UnknownStream {
                    name: name.to_owned(),
                    hint,
                }));
            }
        }
        self.become_profile(profile)
    }

    fn become_profile(&mut self, profile: Profile) -> Result<(), Error> {
        self.become_session(Resolved { profile, ..self.session.clone() })
    }

    fn become_session(&mut self, mut session: Resolved) -> Result<(), Error> {
        assert!(!session.caller.ends_process, "such a run has no streams of a profile to change");
        if session.profile.run != self.session.profile.run {
            return Err(Error::Usage("[run] cannot change during a run\n  try a new run".into()));
        }
        self.attacks_at_other_rates(&mut session)?;
        let mut new =
            session.compile_for(&self.limits, None, Some(&self.opened), true, &|| false)?;
        if let (Some(old), Some(new)) = (&self.planned.flows, &mut new.flows) {
            Arc::make_mut(new).keep_attacks(old);
            *new = Arc::new(old.joined(new));
        }
        self.planned
            .can_become(&new)
            .map_err(|what| Error::Engine(squall_engine::EngineError::FixedLoad(what)))?;
        // Queues were opened with room for the frames of the old plan, so check the new lengths.
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
                 new run, or a stream of such frames from the start, paused until needed"
            )));
        }
        if session.profile.stop != self.session.profile.stop {
            self.running.limit(session.profile.stop)?;
        }
        self.running.apply(self.planned.diff(&new))?;
        (self.planned, self.session) = (Arc::new(new), session);
        Ok(())
    }

    /// Changes the speed of replayed attacks whose rates differ in the changed profile.
    ///
    /// # Errors
    /// The attacks differ in anything else, or they run live on their own schedule.
    fn attacks_at_other_rates(&self, session: &mut Resolved) -> Result<(), Error> {
        let written = |session: &Resolved| {
            let mut value = session.profile.to_value()["attack"].take();
            let tables = value.as_array_mut().into_iter().flatten();
            for table in tables.filter_map(|table| table.as_object_mut()) {
                table.remove("rate");
            }
            value
        };
        let refused = |what: &str| Err(Error::Usage(format!("{what}\n  try a new run")));
        if written(session) != written(&self.session) {
            return refused("only the rate of attacks can change during a run");
        }
        let olds = &self.session.profile.attacks;
        for (old, new) in olds.iter().zip(&session.profile.attacks) {
            if old.pace == new.pace {
                continue;
            }
            let (AttackPace::PerSecond(before), AttackPace::PerSecond(now)) = (old.pace, new.pace)
            else {
                return refused("the share of attacks cannot change during a run");
            };
            // The rate of a template that does not set one is not known here.
            let of_rules = matches!(old.what, AttackOf::Rules(_));
            let known = |attack: &Attack| of_rules || attack.pace != AttackPace::DEFAULT;
            if old.live || !known(old) || !known(new) {
                return refused(&format!(
                    "the rate of attack {:?} cannot change during a run",
                    new.name
                ));
            }
            // Profiles write rates with six digits after the point.
            let whole = |rate: f64| (rate * 1e6).round() as u128;
            let replays = session.replays.iter_mut();
            for replay in replays.filter(|one| one.fixed && one.name == new.name) {
                let (num, den) = replay.speed;
                let num = u128::from(num) * whole(now);
                replay.speed = squall_units::near(num, u128::from(den) * whole(before))
                    .ok_or_else(|| Error::Usage("the rate is out of range".into()))?;
            }
        }
        Ok(())
    }

    /// Sets the clock that the nodes share. The report shows the latest clock, but
    /// with the largest error bound of all clocks set so far.
    pub fn set_clock(&mut self, clock: NodeClock) {
        self.running.set_common_clock(common(clock));
        let before = self.context.clock.map_or(0, |clock| clock.bound_ns);
        let bound_ns = clock.bound_ns.max(before);
        self.context.clock = Some(NodeClock { bound_ns, ..clock });
        self.session.caller.clock = Some(clock);
    }

    /// Lets a held replay send `frames` more frames.
    pub fn step(&self, frames: u64) {
        self.running.step(frames);
    }

    /// Stops sending.
    pub fn stop(&self) {
        self.stop_because(EndedBy::Stopped);
    }

    /// Like [`Run::stop`], with a reason for the report. Has no effect if the run is already over.
    pub fn stop_because(&self, why: EndedBy) {
        let over = self.sent_all && !self.expects_others() && !self.listening();
        if !over {
            _ = self.stopped_by.set(why);
        }
        self.running.stop();
    }

    /// Sets the requested end that the report shows, for a run that only receives and is ended by
    /// its caller.
    pub fn expect(&mut self, asked: Asked) {
        self.expected = asked;
    }

    /// Whether the run ends by itself.
    fn would_end(&self) -> bool {
        let profile = &self.session.profile;
        let stop = profile.stop;
        let asked = stop.duration.is_some() || stop.packets.is_some() || stop.octets.is_some();
        let endless = |s: &squall_plan::PlanStream| {
            s.pattern.packets == u64::MAX || s.pattern.bursts == u64::MAX
        };
        let streams = !self.planned.streams.iter().any(endless);
        let replays = !self.planned.replays.iter().any(PlanReplay::is_endless);
        let flows = self.planned.flows.as_ref().is_none_or(|flows| {
            let load = &flows.load;
            let limited = load.limits.flows.is_some() || load.limits.duration.is_some();
            let own = &load.templates[..load.own_templates()];
            let ends = |t: &squall_flows::Template| t.limit.is_some() || t.shape.is_some();
            limited || load.shape.end().is_some() || own.iter().all(ends)
        });
        // Hosts that only answer, and have nothing else around them, wait until they are stopped.
        let ends = |group: &squall_plan::PlanHosts| !group.settings.only_answers();
        let hosts = !self.planned.only_hosts() || self.planned.hosts.iter().any(ends);
        asked
            || self.expected != Asked::default()
            || (!self.listening() && streams && replays && flows && hosts)
    }

    /// When the first departure was due, in nanoseconds since 1970-01-01 UTC.
    pub fn started_ns(&self) -> u64 {
        self.running.start().0.saturating_add_signed(squall_machine::wall_offset())
    }

    /// The totals so far, without histograms. With thousands of streams this costs a fraction of
    /// [`Run::sample`]. Adds no point to the report's time series.
    pub fn totals(&self) -> Totals {
        let ports = self.running.plan().ports.len();
        let wall_offset_ns = if self.virtual_time { 0 } else { squall_machine::wall_offset() };
        let names = self.running.stream_names();
        let taken = Instant::now();
        Totals::of(taken, names, ports, wall_offset_ns, self.running.counters())
    }

    /// The counters of each received flow so far, at most the first `most` flows of each receive
    /// queue. `None`: flows are not measured. Adds no point to the report's series.
    pub fn received_flows(&self, most: usize) -> Option<Flows> {
        let settings = self.context.flows.as_ref()?;
        let seen = self.running.received_flows(most)?;
        Some(received::so_far(settings, self.running.plan(), &seen))
    }

    /// The open TCP flows of this run, each with its port. If there are more than `most`, some of
    /// them may be missing; more than `most` may still be returned.
    pub fn open_flows(&self, most: usize) -> Vec<(usize, OpenFlow)> {
        squall_engine::open_flows(&self.running, most)
    }

    /// The hosts of this run that `question` selects, at most `limit` of those that match. A filter
    /// reads each host, in parts: it takes about a second for a million, and hosts may change
    /// meanwhile.
    pub fn hosts(&self, question: &HostQuestion) -> HostPage {
        squall_record::host_table::page(&self.running, question)
    }

    /// Continues a search for hosts of this run by some milliseconds. Returns whether it is
    /// complete: then its page is that of [`Run::hosts`].
    pub fn search_hosts(&self, search: &mut HostSearch) -> bool {
        search.read(&self.running)
    }

    /// Host `number`, from 1, of the group with this name, or of the only one, with its last
    /// events.
    ///
    /// # Errors
    /// The run has no such group or host; it has several groups, and none is named.
    pub fn host(&self, group: Option<&str>, number: u32) -> Result<HostDetail, Error> {
        let groups = &self.running.plan().hosts;
        let all: Vec<_> = groups
            .iter()
            .map(|of| format!("{:?} with {} hosts", of.name, of.settings.count))
            .collect();
        let has = if all.is_empty() { "no hosts".to_owned() } else { all.join(", ") };
        let name = match (group, &groups[..]) {
            (Some(name), _) => name,
            (None, [only]) => &only.name,
            (None, _) => {
                let text = format!("cannot find host {number}: the run has {has}");
                return Err(Error::Usage(text + "\n  try it with the name of a group"));
            }
        };
        squall_record::host_table::detail(&self.running, name, number).ok_or_else(|| {
            Error::Usage(format!("cannot find host {number} of {name:?}: the run has {has}"))
        })
    }

    /// Makes all flows ignore frames from these senders, so the senders get no answer.
    pub fn ignore(&self, senders: Ignored) {
        self.running.ignore(senders);
    }

    /// Replaces the interfaces of the flows on a port. The port must have some from the start, so
    /// that its frames have room for their headers.
    pub fn set_interfaces(&self, port: usize, interfaces: Vec<Interface>) {
        self.running.set_interfaces(port, interfaces);
    }

    /// Waits for the end that the profile sets, then returns the report. If the profile sets no
    /// end, call [`Run::stop`] first; otherwise this never returns.
    ///
    /// # Errors
    /// A worker has failed.
    pub fn finish(self) -> Result<Report, Error> {
        self.ended(false).map(|(report, _)| report)
    }

    /// Like [`Run::finish`], and also returns the final totals.
    ///
    /// # Errors
    /// A worker has failed.
    pub fn finish_with_totals(self) -> Result<(Report, Totals), Error> {
        let (report, totals) = self.ended(true)?;
        Ok((report, totals.expect("they are wanted")))
    }

    /// The report, and the totals if they are wanted: with many streams, they are as large.
    fn ended(mut self, wants_totals: bool) -> Result<(Report, Option<Totals>), Error> {
        while !self.wait(Duration::from_secs(1)) {}
        let (plan, facts) = (self.running.plan().clone(), self.facts());
        let (listening, elapsed) = (self.listening(), self.running.elapsed());
        let epoch = match self.virtual_time {
            true => ports::epoch(&self.session.profile.ports),
            false => Nanos(self.started_ns()),
        };
        let (start, would_end) = (self.running.start(), self.would_end());
        // Before their links end with the workers.
        let mut daemons = self.routers.states();
        let mut outcome = self.running.finish()?;
        // The report comes from the plan. Not earlier, because workers receive until then.
        let streams = std::mem::take(&mut self.session.profile.streams);
        free(streams.len(), streams);
        daemons.extend(native_states(&outcome.workers));
        self.passage.iter_mut().for_each(|passage| passage.collect(&mut outcome));
        let mut replayed: Vec<Replayed> = outcome.take();
        replayed.sort_by_key(|replayed| replayed.number);
        let totals = wants_totals.then(|| {
            let names = plan.streams.iter().map(|stream| stream.name.as_str());
            let wall_offset_ns = if self.virtual_time { 0 } else { squall_machine::wall_offset() };
            let workers = outcome.workers.iter().map(Counters::from);
            Totals::of(Instant::now(), names, facts.len(), wall_offset_ns, workers)
        });
        if let Some(capturing) = &self.capturing {
            capturing.tell(&outcome.interfaces, &outcome.workers);
        }
        let ended = self.session.attacks.as_ref().map(|attacks| {
            (attacks, load::ended(outcome.workers.iter().flat_map(|worker| &worker.flows)))
        });
        // Their memory is that of the workers' threads, so the report can be made meanwhile.
        free(plan.streams.len(), outcome.remains());
        let counted = Counted::new(&plan, facts, false, outcome.workers);
        // A run that sends nothing has no last departure. Its duration is the time for which it
        // received, or that of the file it read. Hosts mostly wait, so their last departure is not
        // the end either.
        let no_last = listening || (plan.others_send() && counted.sends_nothing());
        let duration = match no_last || (plan.only_hosts() && elapsed > Nanos::ZERO) {
            true if elapsed == Nanos::ZERO => counted.arrivals(),
            true => elapsed,
            false => outcome.duration,
        };
        let stopped_by = self.stopped_by.get().copied();
        let by = stopped_by.unwrap_or_else(|| counted.ended_by(&plan, elapsed, self.virtual_time));
        let mut attacks = Vec::new();
        if let Some((prepared, (failed, served, hosted))) = ended {
            let named = |name: &str| {
                let is_named = |one: &&Replayed| {
                    let of = &plan.replays[one.number as usize];
                    of.fixed && of.name == name
                };
                replayed.iter().find(is_named)
            };
            let left = |name: &str, time: Nanos| {
                named(name)?.course.instant(time.into()).map(Picos::as_nanos)
            };
            let used = |name: &str| named(name)?.hosts.as_ref();
            let prepared = prepared.left(left, used, (plan.flows.as_deref(), &hosted));
            attacks = prepared.reports(
                plan.flows.as_deref(),
                (&failed, &served),
                self.passage.as_ref(),
                duration,
                // With several nodes, only all reports together show how a conversation ended.
                !self.planned.has_other_nodes(),
            );
            if let Some(labels) = self.labels {
                labels.write(&prepared.sent_until(duration), epoch)?;
            }
        }
        let by_itself = by == EndedBy::Done && !counted.is_lost();
        let ended = |replayed: Replayed| {
            let ends = plan.replays[replayed.number as usize].end.is_some();
            match by_itself && !ends && replayed.error.is_none() {
                true => ReplayEnd::read_on(replayed),
                false => ReplayEnd::of(replayed),
            }
        };
        let mut notes = outcome.notes;
        if let Some(why) = self.session.key_log.as_ref().and_then(KeyLog::failure) {
            notes.push(format!("secrets of TLS sessions are missing in --key-log: {why}"));
        }
        let end = End {
            by,
            // A node that waited for others had nothing left to send, so its end was not open.
            open: would_end && !(self.sent_all && plan.others_send()),
            agreed: self.agreed,
            expected: self.expected,
            began: outcome.began,
            replays: replayed.into_iter().map(ended).collect(),
            attacks,
            criteria: &self.session.criteria,
            failed: self.failed,
            notes,
        };
        let mut record = Record {
            context: &self.context,
            plan: &plan,
            counted,
            start,
            duration,
            interfaces: outcome.interfaces,
            links: outcome.links,
            pacing: outcome.pacing,
            usage: usage(),
            capture: self.capturing.map(Capturing::finish),
            daemons,
            end: Some(end),
        };
        if let (Some(path), Some(file)) =
            (&self.session.options.routes_csv, self.session.routes_csv.as_deref())
        {
            let written = record.write_routes(io::BufWriter::new(file));
            // The report of the run is worth more than the file.
            if let (Err(error), Some(end)) = (written, &mut record.end) {
                end.notes.push(format!("routes are missing in {}: {error}", path.display()));
            }
        }
        let (report, many) = (record.report(self.series.points), plan.streams.len());
        let Record { counted, .. } = record;
        let left = (counted, plan, self.planned);
        match self.session.caller.ends_process && many >= MANY_STREAMS {
            true => std::mem::forget(left),
            false => free(many, left),
        }
        Ok((report, totals))
    }
}

/// Frees `what`, which has `streams` streams. Many of them are freed on a thread of its own, and
/// their memory returns to the system: for a million, this takes as long as their report.
fn free<T: Send + 'static>(streams: usize, what: T) {
    if streams >= MANY_STREAMS {
        let freed = move || {
            drop(what);
            squall_port_linux::trim_heap();
        };
        // Without a thread, it is freed here.
        let _ = std::thread::Builder::new().name("squall-free".into()).spawn(freed);
    }
}

/// The machine's resource usage so far.
fn usage() -> Usage {
    Usage {
        cpu: squall_machine::cpu(),
        contention: squall_machine::contention(),
        memory: squall_machine::memory(),
    }
}

/// The rate at which flows begin, in the unit that the profile uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Cps(f64),
    /// Number of flows that are open at the same time.
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
                return Err(unlike("the load of [flows] is cps", "cps = 1000"));
            }
            (Some(Target::Active(_)), _) => {
                return Err(unlike(
                    "the load of [flows] is a number of open flows",
                    "active = 1000",
                ));
            }
            (Some(Target::Bandwidth(_)), _) => {
                return Err(unlike("the load of [flows] is a bandwidth", "bandwidth = \"1 Gbps\""));
            }
            (None, _) => return Err(unlike("[flows] has no load", "the load of a template")),
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
            (Arrival::Called, _) => {
                return Err(unlike(
                    &format!("flows of template {name:?} are begun by other flows"),
                    "the template of those",
                ));
            }
            (Arrival::None, _) => {
                return Err(unlike(
                    &format!("template {name:?} begins no flows"),
                    "another template",
                ));
            }
        }
        Ok(())
    }
}

fn unlike(what: &str, hint: &str) -> Error {
    Error::Usage(format!(
        "{what}: its kind cannot change during a run, and it must be above 0\n  try {hint}"
    ))
}
