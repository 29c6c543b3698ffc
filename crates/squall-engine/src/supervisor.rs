//! Starts the workers of a plan, sends them commands, and collects their counters.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap, HashSet},
    io,
    num::NonZeroU64,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use squall_flows::{Arrival, Ignored, Interface, Load, Target};
use squall_measure::{Measure, flow::Link};
use squall_plan::{Change, Part, Placement, Plan, PlanFlows, PlanStream};
use squall_port::{
    CommonClock, Filter, InterfaceCounters, LinkEvent, MtuChange, Port, PortFacts, RxQueue, TxQueue,
};
use squall_profile::{Next, Stop};
use squall_program::{Gap, clock};
use squall_replay::Reader;
use squall_router::RouterOrder;
use squall_units::{Nanos, Picos};

use crate::{
    Clock, Counters, Snapshot,
    after::{Afters, Waiting, is_awaited},
    clock::Watch,
    command::{Action, Command, Content, Rate},
    cut::Cutter,
    flows::{self, Player},
    generate::{Driver, one_kind},
    host_frames::HostFrames,
    hosts::{HostTables, Hosts, RouterLinks, tables},
    idle::{Idle, Precision, Sleeper, Wakeups},
    pacing::{PortPace, PortPacing},
    receiving::{Inflow, QueueFlows, ReceivedFlows, Receiving},
    relay::{Relay, relays},
    replay::{Feed, Replayer},
    sink::{self, MakeSink, Shown, Wanted},
    source::{Budget, Outlet, Outlets, Source},
    streams::Streams,
    transmit::StreamPlan,
    worker::{Message, Waker, Worker},
};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether to run on virtual time: as fast as the machine allows, with the same result on each
    /// run.
    pub virtual_time: bool,
    /// Whether to hash all sent frames.
    pub fingerprint: bool,
    /// Measurements of received frames.
    pub measure: Measure,
    /// Per port: how to process received frames, in addition to counting them. May be shorter than
    /// the list of ports.
    pub take: Vec<Take>,
    /// How long receiving continues after everything is sent, for frames in flight.
    pub linger: Duration,
    /// The clock for timestamps in frames and for delays. Unused on virtual time, which all
    /// workers share.
    pub common: CommonClock,
    /// Largest lag of a port's schedule at the end of a valid run.
    pub tolerance: Nanos,
    /// How close to their due times frames leave.
    pub precision: Precision,
}

/// How to process the frames that a port receives.
#[derive(Clone, Default)]
pub struct Take {
    /// Selects the frames to receive, at ports that cannot filter themselves; other frames are
    /// neither counted nor passed on.
    pub filter: Option<Arc<Filter>>,
    /// The link type of the frames.
    pub link: Link,
    /// Listeners at the port, in the order in which they get its frames; a capture comes first.
    pub sinks: Vec<MakeSink>,
}

impl std::fmt::Debug for Take {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Take")
            .field("filter", &self.filter)
            .field("sinks", &self.sinks.len())
            .finish()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            virtual_time: false,
            fingerprint: false,
            measure: Measure::default(),
            take: Vec::new(),
            linger: Duration::from_millis(200),
            common: CommonClock::default(),
            tolerance: Nanos(10_000_000),
            precision: Precision::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("port {port} ({address}): {error}")]
    Port { port: String, address: String, error: io::Error },
    #[error("worker {0} ended in a panic; this is a defect in Squall")]
    Panic(usize),
    #[error("no stream or template is called {name:?}\n  {hint}")]
    UnknownStream {
        name: String,
        /// A similar name, or a list of all names.
        hint: String,
    },
    #[error(
        "stream {0:?} cannot be added: a run can have 65536 streams, including those that were \
         removed"
    )]
    TooMany(String),
    #[error(
        "stream {0:?} cannot be added: the frames of port {1} are made inside the kernel, by a \
         program that is fixed when the run starts\n  try a port of another kind, or a new run"
    )]
    Fixed(String, String),
    #[error(
        "stream {0:?} cannot be added: the run began with flows only, and frames on their port {1} \
         are counted but not measured\n  try a new run, or a profile that has a stream from the \
         start"
    )]
    Uncounted(String, String),
    #[error(
        "the addresses of new templates are none of those that port {0} was opened for\n  try \
         addresses that the run had from the start, a new run, or take=all (af_xdp) without steer"
    )]
    NewHosts(String),
    #[error(
        "stream {0:?} cannot be counted: its frames have no signature, only a mark, and port {1} \
         leaves frames to its own address to the machine's stack unless they have a signature\n  \
         try {2},take=all, or an af_packet port"
    )]
    Unseen(String, String, String),
    #[error(
        "the rate of stream {0:?} cannot change to bits per second: workers share it, its frames \
         have several lengths, and port {1} makes them inside the kernel, where a worker does not \
         see the lengths of the others\n  try a rate in frames per second, or cores = 1"
    )]
    FixedRate(String, String),
    #[error(
        "packets and octets of a run cannot change while {0} workers send: none of them knows the \
         total\n  try a new run, or cores = 1"
    )]
    Count(usize),
    #[error(
        "the end of a run cannot change: the frames of port {0} are made inside the kernel, by a \
         program that is fixed when the run starts\n  try a new run"
    )]
    FixedEnd(String),
    #[error(
        "template {0:?} cannot be paused alone: the load keeps a number of flows open, over all \
         templates\n  try pausing all of them"
    )]
    Together(String),
    #[error(
        "template {0:?}: its flows are begun by other flows, and go on as long as these do\n  try the \
         template of those"
    )]
    Called(String),
    #[error(
        "the load cannot change during a run: {0} would differ\n  try a new run, or a change of \
         rates only"
    )]
    FixedLoad(String),
    #[error("flows of port {0}: {1}")]
    Flows(String, squall_flows::LoadError),
    #[error("cannot start threads: {0}")]
    Thread(io::Error),
}

/// A run in progress.
pub struct Running {
    /// Includes streams added during the run.
    plan: Arc<Plan>,
    /// The numbers of streams that were removed. They stay in the plan, because counters and
    /// signatures refer to their numbers.
    removed: HashSet<usize>,
    ports: Vec<Box<dyn Port>>,
    before: Vec<Option<InterfaceCounters>>,
    threads: Vec<(mpsc::Sender<Message>, Waker, JoinHandle<WorkerResult>)>,
    sent_all: mpsc::Receiver<(usize, u64)>,
    open: Vec<bool>,
    /// Number of streams that were assigned to a worker.
    placed: usize,
    /// Number of streams added to each worker: a report "all sent" with a lower number is out of
    /// date.
    added: Vec<u64>,
    settings: Settings,
    /// Whether frames at ports with flows are only counted.
    counting: bool,
    /// On the engine's clock.
    start: Nanos,
    /// Present if parts wait for others.
    afters: Option<Arc<Afters>>,
    /// By port.
    paces: Vec<Arc<PortPace>>,
    /// Whether the run was stopped: workers that still set up their streams, which can take
    /// seconds, do not read their mail.
    stopped: Arc<AtomicBool>,
}

/// The result of a worker's thread.
type WorkerResult = (Snapshot, Vec<Shown>);

/// The results of a run.
#[derive(Debug)]
pub struct Outcome {
    pub workers: Vec<Snapshot>,
    /// The final values of sources and sinks: see [`Outcome::take`].
    left: Vec<Shown>,
    /// Time from the start to the last departure.
    pub duration: Nanos,
    /// The interfaces' counters during the run, by port.
    pub interfaces: Vec<Option<InterfaceCounters>>,
    /// The link changes of the ports, by port.
    pub links: Vec<LinkChanges>,
    /// The ports' remarks on their operation: see [`Port::notes`].
    pub notes: Vec<String>,
    /// For each part with an `after`: when its last predecessor ended; `None`: never.
    pub began: Vec<(Part, Option<Picos>)>,
    /// How each port kept its schedule.
    pub pacing: Vec<PortPacing>,
}

impl Outcome {
    /// Removes and returns the final values of type `T`.
    pub fn take<T: Any>(&mut self) -> Vec<T> {
        let (of_it, others): (Vec<_>, _) =
            std::mem::take(&mut self.left).into_iter().partition(|left| left.is::<T>());
        self.left = others;
        of_it.into_iter().filter_map(of_type).collect()
    }

    /// Removes and returns all other final values, among them the memory of streams, which the
    /// caller may free on another thread.
    pub fn remains(&mut self) -> Vec<Shown> {
        std::mem::take(&mut self.left)
    }
}

fn of_type<T: Any>(shown: Shown) -> Option<T> {
    shown.downcast().ok().map(|of_it| *of_it)
}

/// The link changes of a port during a run; empty for a port without a link.
#[derive(Clone, Debug, Default)]
pub struct LinkChanges {
    /// Times at which it went down and came up.
    pub events: Vec<LinkEvent>,
    pub mtu: Vec<MtuChange>,
}

/// Maximum number of flows per answer of a worker. An answer takes some 100 us, in which the worker
/// does not receive: bounded, because a ring could overflow meanwhile.
const FLOWS_AT_ONCE: usize = 2048;
/// Time between the start of a run and its first departure, so that all workers are ready before
/// it; and the same if there are only streams that workers send: these need no tables, no reader of
/// captures, and no program in the kernel.
const HEAD_START: Nanos = Nanos(20_000_000);
const HEAD_START_OF_STREAMS: Nanos = Nanos(5_000_000);
/// Added for each stream: a worker sets up 100,000 of them in some 0.1 s, and their first frames would
/// be late by that time.
const HEAD_START_OF_STREAM: Nanos = Nanos(3000);

/// The timer slack of workers, in ns: by how much the kernel may delay a wake-up to merge it with
/// others. With Linux's default of 50 us, frames and flows would leave that much later.
const SLACK: NonZeroU64 = NonZeroU64::new(1000).unwrap();

/// The end of a run without a limit.
pub(crate) const END_OF_TIME: Picos = Picos::LONGEST_RUN;

/// Starts the workers. Each opens its own queues, so that the kernel places their memory on the
/// NUMA node of the worker's CPU (first touch). `ports` are those of the plan, in its order;
/// `readers` supply the frames of the replays on these ports.
///
/// # Errors
/// A queue cannot be opened; no thread is left running.
///
/// # Panics
/// If the number of readers differs from that of these replays.
pub fn start(
    plan: Arc<Plan>,
    ports: Vec<Box<dyn Port>>,
    settings: Settings,
    readers: Vec<Reader>,
) -> Result<Running, EngineError> {
    Ok(ready(plan, ports, settings, readers, Vec::new())?.go(None))
}

/// A prepared run: queues are open, and workers wait for the start.
pub struct Ready {
    /// Declared first, because fields drop in order: workers that will not start must see their
    /// sender dropped before their threads are joined.
    begin: Vec<mpsc::Sender<Clock>>,
    running: Running,
}

impl Ready {
    /// Starts the run. The first frame is due at `start` on the engine's clock; `None`: as soon as
    /// every worker is ready.
    pub fn go(self, start: Option<Nanos>) -> Running {
        let Self { begin, mut running } = self;
        running.before = running.ports.iter().map(|p| p.interface_counters()).collect();
        let head_start = head_start(&running.plan, &running.ports);
        let default_start = || squall_port::monotonic() + head_start;
        let clock = match running.settings.virtual_time {
            true => Clock::Virtual,
            false => Clock::Real(start.unwrap_or_else(default_start)),
        };
        if let Clock::Real(start) = clock {
            running.start = start;
        }
        for worker in begin {
            // The send fails if the worker has panicked; `finish` reports that.
            let _ = worker.send(clock);
        }
        running
    }

    /// Sets the clock that stamps frames.
    pub fn set_common_clock(&mut self, common: CommonClock) {
        self.running.set_common_clock(common);
    }
}

/// Time that the workers of `plan` need before the first departure.
fn head_start(plan: &Plan, ports: &[Box<dyn Port>]) -> Nanos {
    let others = ports.iter().any(|port| port.generates())
        || !plan.replays.is_empty()
        || plan.flows.is_some()
        || !plan.hosts.is_empty()
        || !plan.routers.is_empty();
    let base = if others { HEAD_START } else { HEAD_START_OF_STREAMS };
    Nanos(base.0 + plan.streams.len() as u64 * HEAD_START_OF_STREAM.0)
}

/// As [`start`], but nothing is sent before [`Ready::go`].
///
/// # Errors
/// A queue cannot be opened; no thread is left running.
///
/// # Panics
/// As [`start`].
pub fn ready(
    plan: Arc<Plan>,
    mut ports: Vec<Box<dyn Port>>,
    settings: Settings,
    readers: Vec<Reader>,
    mut links: RouterLinks,
) -> Result<Ready, EngineError> {
    let leaving = plan.replays.iter().filter(|replay| replay.is_here()).count();
    assert_eq!(readers.len(), leaving, "each replay that leaves here has its reader");
    if let Some(flows) = &plan.flows {
        flows::check(flows)
            .map_err(|(port, error)| EngineError::Flows(plan.ports[port].name.clone(), error))?;
        for side in &flows.sides {
            // Declares the hosts before the queues open, because af_xdp assembles its program for
            // their addresses (ADR 0031).
            let served = ports[side.port].serve(&flows::hosts(&plan, side, &flows.load));
            served.map_err(|error| port_error(&plan, side.port, error))?;
        }
    }
    ports.iter_mut().for_each(|port| port.expect_signatures(expected_key(&plan)));
    for (number, stream) in (0..).zip(&plan.streams) {
        check_mark(&plan, &ports, stream)?;
        number_trex(&settings, number, stream);
    }
    let planned =
        clock::Planned { end: plan.stop.duration.map(Picos::from), tolerance: settings.tolerance };
    let paces = plan.ports.iter().map(|_| Arc::new(PortPace::new(planned))).collect();
    let (reply, sent_all) = mpsc::channel();
    let mut running = Running {
        removed: HashSet::new(),
        placed: plan.streams.len(),
        open: vec![true; plan.workers.len()],
        added: vec![0; plan.workers.len()],
        before: Vec::new(),
        counting: plan.only_flows(),
        plan,
        ports,
        threads: Vec::new(),
        sent_all,
        settings,
        start: Nanos::ZERO,
        afters: None,
        paces,
        stopped: Arc::default(),
    };
    let wakers = running.plan.workers.iter().map(|_| Waker::new()).collect::<io::Result<Vec<_>>>();
    let wakers = wakers.map_err(EngineError::Thread)?;
    let mut relays = running.relays(&wakers);
    running.afters = Afters::of(&running.plan, &wakers);
    let mut waiting = Vec::new();
    let tables = tables(&running.plan);
    let mut readers = readers.into_iter();
    let has = |replay: &squall_plan::PlanReplay| replay.is_here().then(|| readers.next()).flatten();
    let mut readers: Vec<_> = running.plan.replays.iter().map(has).collect();
    for index in 0..running.plan.workers.len() {
        let mut feeds = Vec::new();
        for number in running.plan.replays_of(index) {
            if let Some(reader) = readers[number].take() {
                feeds.push((number, Feed::start(reader).map_err(EngineError::Thread)?));
            }
        }
        let relays = std::mem::take(&mut relays[index]);
        let afters = running.afters.clone().map(Waiting::new);
        let (waker, tables) = (wakers[index].clone(), tables.clone());
        let sends = |port: usize| running.plan.workers[index].tx.iter().any(|tx| tx.0 == port);
        let of_worker = |(number, link): (usize, &mut Option<_>)| {
            link.take_if(|_| sends(running.plan.routers[number].port))
        };
        let links = links.iter_mut().enumerate().map(of_worker).collect();
        let stopped = running.stopped.clone();
        let inputs = WorkerInputs { waker, feeds, relays, waiting: afters, tables, links, stopped };
        match running.spawn_worker(index, inputs, reply.clone()) {
            Ok(begin) => waiting.push(begin),
            Err(error) => {
                // Dropping the senders ends the threads that wait for the start.
                drop(waiting);
                return Err(error);
            }
        }
    }
    Ok(Ready { begin: waiting, running })
}

/// The inputs that differ between workers.
struct WorkerInputs {
    waker: Waker,
    /// Feeds by replay number.
    feeds: Vec<(usize, Feed)>,
    /// For each port whose flows are shared by several workers.
    relays: Vec<(usize, Relay)>,
    /// Present if parts wait for others.
    waiting: Option<Waiting>,
    /// Hosts from which other sources send.
    tables: HostTables,
    /// Links to the routers of its ports.
    links: RouterLinks,
    /// Whether the run was stopped.
    stopped: Arc<AtomicBool>,
}

/// Everything a worker needs to start, except its queues and the clock.
struct WorkerSetup {
    index: usize,
    plan: Arc<Plan>,
    settings: Settings,
    mailbox: mpsc::Receiver<Message>,
    sent_all: mpsc::Sender<(usize, u64)>,
    inputs: WorkerInputs,
}

/// Queues with their ports, opened by the worker that has them.
#[derive(Default)]
struct Queues {
    rx: Vec<(usize, u32, Box<dyn RxQueue>)>,
    outlets: Outlets,
    drivers: Vec<Driver>,
    /// Properties of the ports that carry flows or have hosts.
    facts: Vec<(usize, PortFacts)>,
}

impl Queues {
    fn open(
        plan: &Plan,
        index: usize,
        ports: &mut [Box<dyn Port>],
        paces: &[Arc<PortPace>],
    ) -> Result<Self, EngineError> {
        let worker = &plan.workers[index];
        let mut queues = Self::default();
        for &(port, queue) in &worker.rx {
            let rx = ports[port].open_rx(queue).map_err(|error| port_error(plan, port, error))?;
            queues.rx.push((port, queue, rx));
        }
        for &(port, queue) in &worker.tx {
            if ports[port].generates() {
                one_kind(plan, port, &plan.ports[port].address)
                    .map_err(|error| port_error(plan, port, error))?;
            }
            if ports[port].generates() && !plan.is_replayed_on(port) {
                let driver = Driver::open(plan, index, port, queue, ports[port].as_mut());
                queues.drivers.extend(driver.map_err(|error| port_error(plan, port, error))?);
                continue;
            }
            let longest_frame = plan.ports[port].max_frame;
            let tx = ports[port]
                .open_tx(queue, longest_frame)
                .map_err(|error| port_error(plan, port, error))?;
            let tx: Box<dyn TxQueue> = match plan.ports[port].cut_frame {
                0 => tx,
                longest => Box::new(Cutter::new(tx, longest.max(longest_frame))),
            };
            let facts = ports[port].facts();
            let link = ports[port].link();
            let pace = paces[port].clone();
            queues.outlets.add(Outlet::new(port, tx, link, facts.batch, facts.ahead, pace));
            if plan.plays_flows(port) || plan.has_hosts(port) {
                queues.facts.push((port, ports[port].facts().clone()));
            }
        }
        Ok(queues)
    }
}

impl WorkerSetup {
    /// Call on the worker's thread, because the kernel keeps timer slack per thread.
    fn worker(self, cpu: Option<u32>, queues: Queues, clock: Clock) -> Worker {
        let Self { index, plan, settings, mailbox, sent_all, inputs } = self;
        let WorkerInputs { waker, feeds, mut relays, waiting, tables, mut links, stopped } = inputs;
        let Queues { rx, mut outlets, drivers, facts } = queues;
        let stop = plan.watched();
        let common = match clock {
            Clock::Real(_) => settings.common,
            Clock::Virtual => CommonClock::default(),
        };
        if clock != Clock::Virtual && settings.precision != Precision::LowCpu {
            // Fails only on kernels without timer slack.
            let _ = set_current_timer_slack(Some(SLACK));
        }
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let drivers: Vec<_> = drivers.into_iter().map(|d| d.begin(clock, &stop)).collect();
        let print = settings.fingerprint;
        let mut streams = Streams::new(clock, drivers, print, &plan, tables.clone());
        for &(port, _) in &plan.workers[index].tx {
            let shares: Vec<_> = (0..plan.streams.len())
                .filter(|&s| plan.streams[s].port == port)
                .filter_map(|s| {
                    let (first, by) = plan.share(s, index)?;
                    Some((s as u32, StreamPlan::Shared(plan.clone(), s as u32), first, by))
                })
                .collect();
            if !shares.is_empty() {
                // Once frames are due, those that do not leave must count as late.
                let is_due =
                    || matches!(clock, Clock::Real(start) if squall_port::monotonic() >= start);
                let is_stopped = || stopped.load(Ordering::Relaxed) && !is_due();
                streams.load(port, &mut outlets, shares, &is_stopped);
            }
        }
        // A worker without streams needs the source too, because streams may be added later.
        if !plan.workers[index].tx.is_empty() {
            sources.push(Box::new(streams));
        }
        for (number, feed) in feeds {
            let (replay, print) = ((number as u32, &plan.replays[number]), settings.fingerprint);
            let replayer = Replayer::new(replay, &mut outlets, clock, feed, print);
            let awaited = is_awaited(&plan, Part::Replay(number));
            let hosts = plan.replays[number].hosts.map(|hosts| HostFrames::new(hosts, &tables));
            sources.push(Box::new(replayer.awaited(awaited).of_hosts(hosts)));
        }
        let hosted: Vec<_> = facts.iter().filter(|(port, _)| plan.has_hosts(*port)).collect();
        if !hosted.is_empty() {
            let mut hosts = Hosts::new(clock, &plan, tables.clone()).hashing(print);
            for (port, facts) in hosted {
                hosts.add(&plan, (*port, facts), &mut links, &mut outlets);
            }
            sources.push(Box::new(hosts));
        }
        let played: Vec<_> = facts.iter().filter(|(port, _)| plan.plays_flows(*port)).collect();
        let flows = plan.flows.as_ref().filter(|_| !played.is_empty());
        if let Some(flows) = flows {
            let mut player = Player::new(clock, flows, &plan.afters, tables).hashing(print);
            for (port, facts) in played {
                let workers = plan.players(*port).count() as u32;
                let worker = plan.players(*port).take_while(|other| *other < index).count() as u32;
                let relay = relays.iter().position(|(of, _)| of == port);
                let relay = relay.map(|at| relays.swap_remove(at).1);
                let seat = (plan.part, (worker, workers), relay);
                let speed = plan.ports[*port].virtual_bps;
                player.add(flows, *port, (facts, speed), &mut outlets, seat);
            }
            sources.push(Box::new(player));
        }
        let receiving = |(port, number, queue): (usize, u32, Box<dyn RxQueue>)| {
            let hosts = facts.iter().any(|of| of.0 == port);
            let sinks = sink::list(&plan, &settings, clock, (port, number), hosts);
            Receiving::new(port, queue, sinks, hosts)
        };
        let sleeper = Sleeper::new(settings.precision, outlets.launches_after());
        Worker {
            index,
            cpu,
            clock,
            common,
            watch: Watch::new(clock),
            rx: rx.into_iter().map(receiving).collect(),
            sources,
            outlets,
            budget: Budget {
                packets: stop.packets.unwrap_or(u64::MAX),
                octets: stop.octets.unwrap_or(u64::MAX),
                end: end_of(&stop),
            },
            mailbox,
            waker,
            sent_all,
            added: 0,
            reported: false,
            idle: Idle::default(),
            sleeper,
            just_sent: false,
            wakeups: Wakeups::default(),
            inflow: Inflow::default(),
            copying: None,
            finished: false,
            due: Vec::new(),
            ended: Vec::new(),
            waiting,
        }
    }
}

/// The signature key of the frames to measure; `None`: the plan sends no signed frames, so frames
/// of any run are measured.
pub(crate) fn expected_key(plan: &Plan) -> Option<u16> {
    (!plan.streams.is_empty()).then_some(plan.key)
}

/// Lets receivers map the stream's TRex header and mark to its number.
fn number_trex(settings: &Settings, number: u32, stream: &PlanStream) {
    let (Some(ids), Ok(number)) = (&settings.measure.trex, u16::try_from(number)) else { return };
    if let Some(mark) = stream.program.trex() {
        ids.set(mark.hw_id, number);
    }
    if let Some(group) = stream.program.group() {
        ids.set_group(group, number);
    }
}

/// Refuses TRex marks if only the machine's own stack would receive the frames: all would seem
/// lost.
fn check_mark(
    plan: &Plan,
    ports: &[Box<dyn Port>],
    stream: &PlanStream,
) -> Result<(), EngineError> {
    if stream.program.group().is_none() {
        return Ok(());
    }
    let mut receivers: BTreeSet<usize> =
        plan.workers.iter().flat_map(|worker| &worker.rx).map(|rx| rx.0).collect();
    // The sending port counts as a receiver only if there is no other.
    if receivers.len() > 1 {
        receivers.remove(&stream.port);
    }
    let Some(port) = receivers.into_iter().find(|&port| !ports[port].receives_all()) else {
        return Ok(());
    };
    let address = ports[port].facts().address.clone();
    Err(EngineError::Unseen(stream.name.clone(), plan.ports[port].name.clone(), address))
}

/// The time from which on due frames are not sent.
pub(crate) fn end_of(stop: &Stop) -> Picos {
    stop.duration.map_or(END_OF_TIME, Picos::from).min(END_OF_TIME)
}

/// Binds the calling thread to `cpu`. Returns the CPU that it is bound to.
fn bind(cpu: Option<u32>) -> Option<u32> {
    let number = cpu.map(|cpu| cpu as usize).filter(|&cpu| cpu < CpuSet::MAX_CPU)?;
    let mut only = CpuSet::new();
    only.set(number);
    // The kernel refuses a CPU that went offline: the worker then runs on any CPU, and the report
    // shows it.
    sched_setaffinity(None, &only).ok().and(cpu)
}

fn port_error(plan: &Plan, port: usize, error: io::Error) -> EngineError {
    let p = &plan.ports[port];
    EngineError::Port { port: p.name.clone(), address: p.address.clone(), error }
}

impl Running {
    /// Per worker: its relay at each port whose flows several workers share and whose queues do not
    /// separate them reliably.
    fn relays(&self, wakers: &[Waker]) -> Vec<Vec<(usize, Relay)>> {
        let mut all: Vec<Vec<_>> = wakers.iter().map(|_| Vec::new()).collect();
        let sides = self.plan.flows.iter().flat_map(|flows| &flows.sides);
        for port in sides.map(|side| side.port).filter(|p| !self.ports[*p].facts().pairs_queues()) {
            let players: Vec<usize> = self.plan.players(port).collect();
            if players.len() > 1 {
                let own_wakers: Vec<_> = players.iter().map(|&w| wakers[w].clone()).collect();
                for (&player, relay) in players.iter().zip(relays(&own_wakers)) {
                    all[player].push((port, relay));
                }
            }
        }
        all
    }

    /// Starts the thread of worker `index`, which opens its queues and then waits for the clock.
    ///
    /// The thread runs in the network namespaces of the caller, as the ports did when they were
    /// opened.
    fn spawn_worker(
        &mut self,
        index: usize,
        inputs: WorkerInputs,
        sent_all: mpsc::Sender<(usize, u64)>,
    ) -> Result<mpsc::Sender<Clock>, EngineError> {
        let (mail, mailbox) = mpsc::channel();
        let (opened, ready) = mpsc::channel();
        let (begin, beginning) = mpsc::channel();
        let (plan, settings) = (self.plan.clone(), self.settings.clone());
        let paces = self.paces.clone();
        let waker = inputs.waker.clone();
        let setup = WorkerSetup { index, plan, settings, mailbox, sent_all, inputs };
        let mut ports = std::mem::take(&mut self.ports);
        let work = move || {
            // Binds the thread before the queues are opened, so that the kernel places their memory
            // near this CPU.
            let cpu = bind(setup.plan.workers[index].cpu);
            let queues = Queues::open(&setup.plan, index, &mut ports, &paces);
            let (queues, error) = match queues {
                Ok(queues) => (queues, None),
                Err(error) => (Queues::default(), Some(error)),
            };
            let failed = opened.send((ports, error)).is_err();
            match beginning.recv() {
                Ok(clock) if !failed => setup.worker(cpu, queues, clock).run(),
                _ => WorkerResult::default(),
            }
        };
        let thread = thread::Builder::new().name(format!("squall-{index}")).spawn(work);
        self.threads.push((mail, waker, thread.map_err(EngineError::Thread)?));
        let (ports, error) = ready.recv().map_err(|_| EngineError::Panic(index))?;
        self.ports = ports;
        error.map_or(Ok(begin), Err)
    }

    /// The plan, including streams added and removed during the run.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Names of all streams, by number; streams added during the run come last.
    pub fn stream_names(&self) -> impl Iterator<Item = &str> {
        self.plan.streams.iter().map(|stream| stream.name.as_str())
    }

    pub fn port_facts(&self, port: usize) -> &squall_port::PortFacts {
        self.ports[port].facts()
    }

    /// When the first departure is due, on the engine's clock.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// Time from the first due departure until now; 0 before it.
    pub fn elapsed(&self) -> Nanos {
        if self.settings.virtual_time {
            Nanos::ZERO
        } else {
            squall_port::monotonic().saturating_sub(self.start)
        }
    }

    /// Waits until all frames are sent, at most `timeout`. Returns whether they are.
    pub fn wait_sent(&mut self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        while self.open.iter().any(|&o| o) {
            match self.sent_all.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((worker, added)) => self.open[worker] = added < self.added[worker],
                // A worker that ended without a command has failed, so there is nothing to wait
                // for.
                Err(RecvTimeoutError::Timeout) => {
                    return self.threads.iter().any(|t| t.2.is_finished());
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        true
    }

    /// The counters of every worker so far; `full`: with histograms. Workers that do not answer
    /// within a second are left out.
    pub fn snapshot(&self, full: bool) -> Vec<Snapshot> {
        self.ask(|reply| Message::Snapshot(full, reply))
    }

    /// As [`Running::snapshot`] without histograms, and without streams: a hundred thousand of them
    /// are 23 MB.
    pub fn snapshot_of_ports(&self) -> Vec<Snapshot> {
        self.ask(Message::Ports)
    }

    /// The counters of every worker, without histograms, as [`Running::snapshot`].
    pub fn counters(&self) -> Vec<Counters> {
        self.ask(Message::Counters)
    }

    /// Counters of each flow so far, for at most `most` flows per queue. `None`: flows are not
    /// measured.
    ///
    /// Asks in parts, because a worker that copies a million flows at once does not receive
    /// meanwhile, and its ring overflows.
    pub fn received_flows(&self, most: usize) -> Option<ReceivedFlows> {
        let mut all = None::<ReceivedFlows>;
        for from in (0..most).step_by(FLOWS_AT_ONCE) {
            let wanted = FLOWS_AT_ONCE.min(most - from);
            let parts: Vec<QueueFlows> = self.show(&(from as u32..(from + wanted) as u32));
            let more = parts.iter().any(|part| part.total > from + wanted);
            if parts.is_empty() {
                break;
            }
            let sum = all.get_or_insert_default();
            for part in parts {
                // Every answer repeats the totals; count them once.
                if from == 0 {
                    sum.total += part.total;
                    sum.rest = (sum.rest.0 + part.rest.0, sum.rest.1 + part.rest.1);
                    sum.begin = sum.begin.into_iter().chain(part.begin).min();
                }
                sum.flows.extend(part.flows.into_iter().map(|flow| (part.port, flow)));
            }
            if !more {
                break;
            }
        }
        all
    }

    /// The display values of type `T` of all sources and sinks, limited to the records with these
    /// numbers.
    pub fn show<T: Any>(&self, records: &Range<u32>) -> Vec<T> {
        let shown = self.ask(|reply| Message::Show(Wanted::new::<T>(records.clone()), reply));
        shown.into_iter().flatten().filter_map(of_type).collect()
    }

    /// Makes all flows ignore frames from these senders: they get no answer.
    pub fn ignore(&self, senders: Ignored) {
        self.broadcast(Command::to_all(Action::Ignore(Arc::new(senders))));
    }

    /// Carries out an order of a native router, by its number in the plan. [`squall_router::check`]
    /// says whether the router can. `duration`: the reverse follows after this time.
    pub fn order(&self, router: usize, order: RouterOrder, duration: Option<Nanos>) {
        self.broadcast(Command::to_all(Action::Router(router, order, duration)));
    }

    /// Replaces the interfaces of the flows on a port that has some.
    pub fn set_interfaces(&self, port: usize, interfaces: Vec<Interface>) {
        self.broadcast(Command::to_all(Action::Interfaces(port, interfaces.into())));
    }

    fn ask<T>(&self, message: impl Fn(mpsc::Sender<T>) -> Message) -> Vec<T> {
        // All are asked before the first answer is awaited, so that workers answer in parallel.
        let replies: Vec<_> = self
            .threads
            .iter()
            .map(|(mail, waker, _)| {
                let (reply, answer) = mpsc::channel();
                let asked = mail.send(message(reply)).is_ok();
                waker.wake();
                asked.then_some(answer)
            })
            .collect();
        replies
            .into_iter()
            .flatten()
            .filter_map(|r| r.recv_timeout(Duration::from_secs(1)).ok())
            .collect()
    }

    fn broadcast(&self, command: Command) {
        for (mail, waker, _) in &self.threads {
            // A worker that has ended needs no command.
            let _ = mail.send(Message::Command(command.clone()));
            waker.wake();
        }
    }

    fn send_to(&self, worker: usize, command: Command) {
        if let Some((mail, waker, _)) = self.threads.get(worker) {
            let _ = mail.send(Message::Command(command));
            waker.wake();
        }
    }

    /// The numbers of all streams, by name: a search for each of many names would take minutes.
    fn numbers(&self) -> HashMap<String, u32> {
        self.live().map(|(number, stream)| (stream.name.clone(), number as u32)).collect()
    }

    /// The streams that were not removed, each with its number.
    fn live(&self) -> impl DoubleEndedIterator<Item = (usize, &PlanStream)> {
        self.plan.streams.iter().enumerate().filter(|(number, _)| !self.removed.contains(number))
    }

    fn number(&self, name: &str) -> Result<u32, EngineError> {
        let found = self.live().rfind(|(_, stream)| stream.name == name);
        found.map(|(number, _)| number as u32).ok_or_else(|| {
            let streams = self.live().map(|(_, stream)| stream.name.as_str());
            let groups = self.live().filter_map(|(_, stream)| stream.group.as_deref());
            let templates = self.plan.flows.iter().flat_map(|flows| &flows.load.templates);
            let templates = templates.map(|template| template.name.as_str());
            let replays = self.plan.replays.iter().map(|replay| replay.name.as_str());
            let known: BTreeSet<&str> =
                streams.chain(groups).chain(templates).chain(replays).collect();
            EngineError::UnknownStream {
                name: name.to_owned(),
                hint: squall_units::suggest(name, known),
            }
        })
    }

    /// The stream with this name, or the streams of the group with this name.
    fn chosen(&self, name: &str) -> Result<Vec<usize>, EngineError> {
        match self.number(name) {
            Ok(number) => Ok(vec![number as usize]),
            Err(unknown) => {
                let in_group = |(number, stream): (usize, &PlanStream)| {
                    (stream.group.as_deref() == Some(name)).then_some(number)
                };
                let group: Vec<_> = self.live().filter_map(in_group).collect();
                if group.is_empty() { Err(unknown) } else { Ok(group) }
            }
        }
    }

    /// The template with this name, or the templates of the mix with this name; none if it is the
    /// name of a stream or group.
    fn templates(&self, name: &str) -> Result<Vec<usize>, EngineError> {
        let Some(flows) = &self.plan.flows else { return Ok(Vec::new()) };
        if self.chosen(name).is_ok() {
            return Ok(Vec::new());
        }
        let load = &flows.load;
        let of = |own: &str| {
            own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let found: Vec<_> =
            load.templates.iter().enumerate().filter(|(_, one)| of(&one.name)).collect();
        let weighted = |arrival: &Arrival| matches!(arrival, Arrival::Weight { .. });
        let all = load.templates.iter().filter(|template| weighted(&template.arrival)).count();
        if matches!(load.target, Some(Target::Active(_)))
            && all > 1
            && found.iter().any(|(_, template)| weighted(&template.arrival))
        {
            return Err(EngineError::Together(name.to_owned()));
        }
        if found.iter().any(|(_, template)| template.arrival == Arrival::Called) {
            return Err(EngineError::Called(name.to_owned()));
        }
        Ok(found.into_iter().map(|(number, _)| number).collect())
    }

    /// The parts with this name; `None`: everything that can be paused.
    fn parts(&self, name: Option<&str>) -> Result<Vec<Option<Part>>, EngineError> {
        let Some(name) = name else { return Ok(vec![None]) };
        let templates = self.templates(name)?;
        if !templates.is_empty() {
            return Ok(templates.into_iter().map(|number| Some(Part::Template(number))).collect());
        }
        match self.chosen(name) {
            Ok(streams) => Ok(streams.into_iter().map(|i| Some(Part::Stream(i))).collect()),
            Err(unknown) => match self.replay(name) {
                Some(number) => Ok(vec![Some(Part::Replay(number))]),
                None => Err(unknown),
            },
        }
    }

    /// The number of the replay with this name.
    fn replay(&self, name: &str) -> Option<usize> {
        self.plan.replays.iter().position(|replay| replay.name == name)
    }

    /// Pauses a stream, the streams of a group, a template (it begins no flows; open flows
    /// continue), a replay, or all.
    ///
    /// # Errors
    /// [`EngineError::UnknownStream`], [`EngineError::Together`].
    pub fn pause(&self, name: Option<&str>) -> Result<(), EngineError> {
        self.broadcast_parts(name, &Action::Pause)
    }

    /// Resumes parts; names as in [`Running::pause`].
    ///
    /// # Errors
    /// [`EngineError::UnknownStream`], [`EngineError::Together`].
    pub fn resume(&self, name: Option<&str>) -> Result<(), EngineError> {
        self.broadcast_parts(name, &Action::Resume)
    }

    fn broadcast_parts(&self, name: Option<&str>, action: &Action) -> Result<(), EngineError> {
        for part in self.parts(name)? {
            self.broadcast(Command { part, action: action.clone() });
        }
        Ok(())
    }

    /// Applies the changes that [`Plan::diff`] found. Streams without a change continue
    /// undisturbed.
    ///
    /// # Errors
    /// [`EngineError::UnknownStream`], [`EngineError::TooMany`], [`EngineError::Fixed`],
    /// [`EngineError::FixedRate`]. Earlier changes stay applied.
    pub fn apply(&mut self, changes: Vec<Change>) -> Result<(), EngineError> {
        let mut added = Vec::new();
        let mut numbers = self.numbers();
        let number = |running: &Self, numbers: &HashMap<String, u32>, name: &str| {
            numbers.get(name).map_or_else(|| running.number(name), |number| Ok(*number))
        };
        for change in changes {
            match change {
                Change::Load(flows) => {
                    self.can_play(&flows)?;
                    let before = self.plan.flows.as_ref().map_or(0, |old| old.load.templates.len());
                    let load = Content::Load(Arc::new(flows.load.clone()));
                    self.broadcast(Command::to_all(Action::Replace(load)));
                    // Workers that had begun all of their flows may have new ones to begin.
                    let players = flows.ports().flat_map(|port| self.plan.players(port));
                    for worker in players.collect::<BTreeSet<usize>>() {
                        self.open[worker] = true;
                        self.added[worker] += 1;
                    }
                    self.begin_templates(&flows.load, before);
                    Arc::make_mut(&mut self.plan).flows = Some(flows);
                }
                Change::Rate(name, gap, pps) => {
                    let number = number(self, &numbers, &name)?;
                    let stream = &self.plan.streams[number as usize];
                    let varied = stream.placement == Placement::Shared
                        && stream.program.sizes().only().is_none();
                    if varied
                        && matches!(gap, Gap::PerOctet { .. })
                        && self.ports[stream.port].generates()
                    {
                        return Err(EngineError::FixedRate(
                            name,
                            self.plan.ports[stream.port].name.clone(),
                        ));
                    }
                    let stream = &mut Arc::make_mut(&mut self.plan).streams[number as usize];
                    (stream.gap, stream.asked_pps) = (gap, pps);
                    self.broadcast(Command::to(
                        Part::Stream(number as usize),
                        Action::Rate(Rate::Gap(gap)),
                    ));
                }
                Change::Speed(name, speed) => {
                    if let Some(number) = self.replay(&name) {
                        Arc::make_mut(&mut self.plan).replays[number].speed = speed;
                        let speed = Action::Rate(Rate::Speed(speed));
                        self.broadcast(Command::to(Part::Replay(number), speed));
                    }
                }
                Change::Remove(name) => {
                    let number = number(self, &numbers, &name)? as usize;
                    self.removed.insert(number);
                    numbers.remove(&name);
                    let nothing = Action::Replace(Content::Nothing);
                    self.broadcast(Command::to(Part::Stream(number), nothing));
                }
                Change::Add(stream, _) if self.ports[stream.port].generates() => {
                    let port = self.plan.ports[stream.port].name.clone();
                    return Err(EngineError::Fixed(stream.name, port));
                }
                Change::Add(stream, _) if self.counting && self.plan.plays_flows(stream.port) => {
                    let port = self.plan.ports[stream.port].name.clone();
                    return Err(EngineError::Uncounted(stream.name, port));
                }
                Change::Add(mut stream, next) => {
                    check_mark(&self.plan, &self.ports, &stream)?;
                    let number = self.plan.streams.len() as u32;
                    if number > u16::MAX.into() && stream.program.is_known() {
                        return Err(EngineError::TooMany(stream.name));
                    }
                    if let Some(program) = stream.program.renumbered(number) {
                        stream.program = Arc::new(program);
                    }
                    number_trex(&self.settings, number, &stream);
                    numbers.insert(stream.name.clone(), number);
                    // The stream's index must equal its number, because workers refer to it by
                    // number.
                    Arc::make_mut(&mut self.plan).streams.push(*stream);
                    added.push((number, next));
                }
            }
        }
        // Done after the loop, because `next` may name a stream added later in the list.
        for (stream, name) in &added {
            let next = name.as_ref().map(|name| number(self, &numbers, name)).transpose()?;
            let stream = &mut Arc::make_mut(&mut self.plan).streams[*stream as usize];
            stream.next =
                stream.next.zip(next).map(|(arrow, next)| Next { stream: next as usize, ..arrow });
        }
        for (number, _) in added {
            let Some(worker) = self.worker_for(number as usize) else { continue };
            let stream = &mut Arc::make_mut(&mut self.plan).streams[number as usize];
            stream.placement = Placement::Worker(worker);
            let stream = Arc::new(stream.clone());
            self.open[worker] = true;
            self.added[worker] += 1;
            let new = Action::Replace(Content::Stream(stream));
            self.send_to(worker, Command::to(Part::Stream(number as usize), new));
        }
        self.placed = self.plan.streams.len();
        Ok(())
    }

    /// Starts templates `first` and later, except those that wait for others.
    fn begin_templates(&self, load: &Load, first: usize) {
        if first == load.templates.len() {
            return;
        }
        // A worker answers after it has applied the command. After all answers, all servers listen,
        // so no client meets a closed port.
        self.counters();
        let new = load.templates.iter().enumerate().skip(first);
        for (number, _) in new.filter(|(_, template)| !template.waits) {
            self.broadcast(Command::to(Part::Template(number), Action::Begin));
        }
    }

    /// Checks that the running flows can be changed to `flows`.
    fn can_play(&self, flows: &PlanFlows) -> Result<(), EngineError> {
        let Some(old) = &self.plan.flows else {
            return Err(EngineError::FixedLoad("all of it".into()));
        };
        old.load.can_become(&flows.load).map_err(EngineError::FixedLoad)?;
        if flows.load.templates.len() == old.load.templates.len() {
            return Ok(());
        }
        let name = |port: usize| self.plan.ports[port].name.clone();
        flows::check(flows).map_err(|(port, error)| EngineError::Flows(name(port), error))?;
        let missing = flows.sides.iter().find(|side| {
            !self.ports[side.port].serves(&flows::hosts(&self.plan, side, &flows.load))
        });
        missing.map_or(Ok(()), |side| Err(EngineError::NewHosts(name(side.port))))
    }

    /// The worker for a new stream: the worker of the streams it is chained to, because only
    /// streams on one worker can start each other; otherwise the port's first worker.
    fn worker_for(&self, number: usize) -> Option<usize> {
        let streams = &self.plan.streams;
        if self.plan.ports[streams[number].port].elsewhere {
            return None;
        }
        let chain = std::iter::successors(Some(number), |&i| streams[i].next.map(|n| n.stream))
            .take(streams.len());
        let there = chain.filter(|&i| i < self.placed).find_map(|i| match streams[i].placement {
            Placement::Worker(worker) => Some(worker),
            Placement::Shared => None,
        });
        let port = streams[number].port;
        there.or_else(|| self.plan.workers.iter().position(|w| w.tx.iter().any(|t| t.0 == port)))
    }

    /// Moves the end of the run to `stop`, counted from its start. An end that was already reached
    /// does not change.
    ///
    /// # Errors
    /// [`EngineError::Count`]: several workers send, and the total of packets or octets differs.
    ///
    /// [`EngineError::FixedEnd`].
    pub fn limit(&mut self, stop: Stop) -> Result<(), EngineError> {
        let old = self.plan.stop;
        let generates =
            |&port: &usize| self.ports[port].generates() && !self.plan.is_replayed_on(port);
        if let Some(port) = (0..self.ports.len()).find(generates) {
            return Err(EngineError::FixedEnd(self.plan.ports[port].name.clone()));
        }
        let senders = self.plan.workers.iter().filter(|w| !w.tx.is_empty()).count();
        if (stop.packets, stop.octets) != (old.packets, old.octets) && senders > 1 {
            return Err(EngineError::Count(senders));
        }
        Arc::make_mut(&mut self.plan).stop = stop;
        self.broadcast(Command::to_all(Action::Limit(stop)));
        Ok(())
    }

    /// Lets `frames` more frames of a held replay ([`squall_replay::Replay::held`]) leave.
    pub fn step(&self, frames: u64) {
        self.broadcast(Command::to_all(Action::Step(frames)));
    }

    /// Sets the clock that stamps frames, on real time.
    pub fn set_common_clock(&mut self, common: CommonClock) {
        self.settings.common = common;
        if !self.settings.virtual_time {
            self.broadcast(Command::to_all(Action::Clock(common)));
        }
    }

    /// Stops sending. [`Running::finish`] still receives frames in flight.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.broadcast(Command::to_all(Action::Stop));
    }

    /// Ends the run: waits for frames in flight, then collects the counters.
    ///
    /// # Errors
    /// [`EngineError::Panic`].
    pub fn finish(mut self) -> Result<Outcome, EngineError> {
        self.stop();
        // Open flows get time to drain, because aborted ones count as failed.
        let drain = self.plan.flows.as_ref().map_or(Nanos::ZERO, |flows| flows.load.drain);
        let until = Instant::now() + Duration::from_nanos(drain.0);
        self.wait_sent(Duration::from_secs(2) + Duration::from_nanos(drain.0));
        self.wait_for_servers(until);
        let receives = self.plan.workers.iter().any(|w| !w.rx.is_empty());
        if receives && !self.settings.virtual_time {
            thread::sleep(self.settings.linger);
        }
        // Read before the queues close, because some drivers reset the link when an XDP program is
        // detached.
        let links = self.links();
        let (mut workers, mut left) = (Vec::new(), Vec::new());
        for (index, worker) in self.end().into_iter().enumerate() {
            let (snapshot, of_sources) = worker.map_err(|_| EngineError::Panic(index))?;
            workers.push(snapshot);
            left.extend(of_sources);
        }
        // Read after the queues have closed, because some notes are only complete then.
        let notes = self.ports.iter().flat_map(|port| port.notes()).collect();
        let last = workers.iter().flat_map(|w| &w.tx).map(|t| t.last).max().unwrap_or(self.start);
        let interfaces = self.interfaces();
        let end = end_of(&self.plan.stop);
        let began = self.afters.as_ref().map_or_else(Vec::new, |afters| afters.began(end));
        Ok(Outcome {
            workers,
            left,
            duration: last.saturating_sub(self.start),
            interfaces,
            links,
            notes,
            began,
            pacing: self.pacing(true),
        })
    }
}

/// How often to check whether servers have ended.
const SERVER_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Running {
    /// If clients and servers have separate workers, waits for servers that still send after the
    /// last client has ended. On virtual time one worker has both.
    fn wait_for_servers(&self, until: Instant) {
        let plays = self.plan.flows.is_some() && !self.settings.virtual_time;
        while plays && Instant::now() < until && self.counters().iter().any(|of| of.acts) {
            thread::sleep(SERVER_POLL_INTERVAL);
        }
    }

    /// The interfaces' counters, counted from the start, by port; `None`: the port has no
    /// interface.
    pub fn interfaces(&self) -> Vec<Option<InterfaceCounters>> {
        let ports = self.ports.iter().zip(&self.before);
        ports
            .map(|(port, before)| Some(difference(port.interface_counters()?, (*before)?)))
            .collect()
    }

    /// How each port has kept its schedule so far; `over`: sending has ended.
    pub fn pacing(&self, over: bool) -> Vec<PortPacing> {
        let clock = match self.settings.virtual_time {
            true => Clock::Virtual,
            false => Clock::Real(self.start),
        };
        let now = squall_port::monotonic();
        self.paces.iter().map(|pace| pace.so_far(clock, now, over)).collect()
    }

    /// The ports' link changes so far, by port, on the engine's clock.
    pub fn links(&self) -> Vec<LinkChanges> {
        let changes = |link: Arc<squall_port::Link>| LinkChanges {
            events: link.events(),
            mtu: link.mtu_changes(),
        };
        self.ports.iter().map(|port| port.link().map(changes).unwrap_or_default()).collect()
    }

    /// Commands all workers to end and waits until they have.
    fn end(&mut self) -> Vec<thread::Result<WorkerResult>> {
        self.stopped.store(true, Ordering::Relaxed);
        for (mail, waker, _) in &self.threads {
            // The send fails if the worker has already ended.
            let _ = mail.send(Message::Finish);
            waker.wake();
        }
        self.threads.drain(..).map(|(_, _, thread)| thread.join()).collect()
    }
}

/// A dropped run must stop sending.
impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn difference(now: InterfaceCounters, then: InterfaceCounters) -> InterfaceCounters {
    InterfaceCounters {
        tx_packets: now.tx_packets.wrapping_sub(then.tx_packets),
        tx_octets: now.tx_octets.wrapping_sub(then.tx_octets),
        tx_dropped: now.tx_dropped.wrapping_sub(then.tx_dropped),
        tx_errors: now.tx_errors.wrapping_sub(then.tx_errors),
        rx_packets: now.rx_packets.wrapping_sub(then.rx_packets),
        rx_octets: now.rx_octets.wrapping_sub(then.rx_octets),
        rx_dropped: now.rx_dropped.wrapping_sub(then.rx_dropped),
        rx_errors: now.rx_errors.wrapping_sub(then.rx_errors),
        rx_missed: now.rx_missed.wrapping_sub(then.rx_missed),
        rx_fifo: now.rx_fifo.wrapping_sub(then.rx_fifo),
    }
}
