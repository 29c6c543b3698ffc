//! `compile(Profile, port limits, inputs, cores) -> Plan`: the frames that each worker will send,
//! as templates, field operations and times. A plan is a value: it can be printed ([`text`]),
//! compared ([`Plan::diff`]) and tested.
//!
//! Pure, except for files that a profile names, which are read through [`Assets`]. Attack rules are
//! solved before; the results are part of the [`Inputs`]. This crate is independent of backends and
//! clocks.
#![forbid(unsafe_code)]

mod after;
mod attack_hosts;
mod compile;
mod cut;
mod diff;
pub mod explain;
pub mod flows;
mod hosts;
mod lanes;
mod place;
mod rate;
pub mod replays;
mod route_tables;
mod routers;
mod source;
mod stream_hosts;
mod stream_routes;
mod survey;
#[cfg(test)]
mod test_files;
pub mod text;

use std::{collections::HashSet, io, sync::Arc};

use squall_apps::{Import, ImportOptions, KeyLog};
use squall_bpf::classic::Filter;
use squall_profile::{Late, Stop};
use squall_program::{Gap, GapLaw, Pattern, Program, Timeline};
use squall_replay::Input;
use squall_units::{Division, L1_OVERHEAD, MacAddr, Nanos, Picos, Segmentation};

pub use after::{After, Part};
pub use attack_hosts::{ReplayHosts, attack_hosts};
pub use compile::compile;
pub use diff::Change;
pub use flows::{FlowSide, LiveFlows, PlanFlows, PlannedLoad, PlannedPool, PlannedTemplate};
pub use hosts::PlanHosts;
pub use lanes::{LANE_MARGIN, LANE_OCTETS, LanePhase};
pub use replays::PlanReplay;
pub use routers::{ExpectedRoutes, PlanRouter, router_step};
pub use source::SourceId;
pub use squall_options::Multiplier;
pub use stream_hosts::{HostField, LearntRoutes, StreamHosts};
pub use stream_routes::StreamRoutes;
pub use survey::survey;

/// The facts about a port that a plan needs: `PortFacts` without those for backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// Largest frame, in octets without FCS.
    pub max_frame: u32,
    /// The MAC address of the interface, if it has one.
    pub mac: Option<MacAddr>,
    pub speed_bps: Option<u64>,
    /// Maximum number of queues that can send at the same time.
    pub tx_queues: u32,
    /// Number of receive queues; 0: the port cannot receive, or receiving is disabled.
    pub rx_queues: u32,
    /// Frames sent on queue i arrive on queue i of the other end (a loop), so as many queues
    /// receive as send. Otherwise the port spreads received frames over all of its queues.
    pub paired_queues: bool,
    /// The device's NUMA node, if known.
    pub node: Option<u32>,
    /// The port runs on virtual time, on which no stream can send as fast as possible.
    pub virtual_time: bool,
    /// The component that segments GSO frames.
    pub segmentation: Segmentation,
    /// The port belongs to another node. It is planned like any other, but carries no frames here.
    pub elsewhere: bool,
}

/// Reads the files that a profile names.
pub trait Assets {
    /// # Errors
    /// A file that cannot be read.
    fn file(&self, path: &str) -> io::Result<Vec<u8>>;
    /// Reads a file that packet text names. Its path is relative to the profile's directory.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn payload(&self, path: &str) -> io::Result<Vec<u8>>;
    /// Opens a table of routes, whose path is relative to the profile's directory, and decompresses
    /// it while it is read.
    ///
    /// # Errors
    /// A file that cannot be opened.
    fn table(&self, path: &str) -> io::Result<Box<dyn io::Read>>;
    /// The octets, without FCS, of frame `number` (1-based) of a capture.
    ///
    /// # Errors
    /// The file or the frame does not exist; the error is a message for the user.
    fn capture_frame(&self, path: &str, number: u64) -> Result<Vec<u8>, String>;
    /// A capture that is opened at the start of the run; `-` is the standard input.
    fn capture(&self, path: &str) -> Input;
    /// The conversations in a capture, made from the packets that match `filter`, a tcpdump
    /// expression.
    ///
    /// # Errors
    /// A message for the user: the file is missing or not a capture, it has more conversations than
    /// `options` allow, or the filter is invalid.
    fn conversations(
        &self,
        path: &str,
        filter: Option<&str>,
        options: &ImportOptions,
    ) -> Result<Import, String>;
    /// Compiles the tcpdump expression `expression` to a filter for Ethernet frames.
    ///
    /// # Errors
    /// The expression is invalid, or there is no compiler for expressions; the error is a message
    /// for the user.
    fn filter(&self, expression: &str) -> Result<Filter, String>;
}

/// Inputs of a plan in addition to the profile.
pub struct Inputs<'a> {
    pub assets: &'a dyn Assets,
    /// Captures to replay after those of the profile, such as attacks.
    pub replays: Vec<PlanReplay>,
    /// If the plan changes a current run: the replays with which the run was opened. Only their
    /// speeds may differ.
    pub opened: Option<&'a [squall_profile::Replay]>,
    /// Attacks whose conversations use Squall's own TCP and UDP.
    pub live_flows: Option<LiveFlows<'a>>,
    /// Whether the plan is no longer needed. If so, compilation soon stops with an error.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl<'a> Inputs<'a> {
    /// Inputs that have only the profile and its files.
    pub fn of(assets: &'a dyn Assets) -> Self {
        Self {
            assets,
            replays: Vec::new(),
            opened: None,
            live_flows: None,
            is_cancelled: &|| false,
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Number of workers; `None`: one per sending port, and one for receiving if there is another
    /// CPU.
    pub cores: Option<usize>,
    /// Number of CPUs of the machine, at least 1.
    pub cpus: usize,
    /// The machine's memory in octets; 0: unknown. The default of `max_flows` depends on it.
    pub memory: u64,
    /// CPUs to which workers may be pinned, the best ones first; `None`: the scheduler moves
    /// workers freely.
    pub pin: Option<Vec<Cpu>>,
    pub multiplier: Option<Multiplier>,
    /// The part to plan: one of several runs that send everything together.
    pub part: Division,
}

/// A CPU for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The operating system's number of this CPU.
    pub number: u32,
    /// Number of the core. The CPUs of one core (SMT siblings) share it.
    pub core: u32,
    /// Number of the NUMA node.
    pub node: u32,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// The key in signatures ([`squall_program::signature`]).
    pub key: u16,
    /// The part of the run that this plan sends. It depends only on the profile, not on the
    /// machine.
    pub part: Division,
    pub stop: Stop,
    /// The packets or octets of `stop` were converted to the length of the only stream, or of each
    /// worker's share of it, so nothing needs to count them.
    pub counted: bool,
    pub ports: Vec<PlanPort>,
    pub streams: Vec<PlanStream>,
    pub replays: Vec<PlanReplay>,
    pub flows: Option<Arc<PlanFlows>>,
    pub hosts: Vec<PlanHosts>,
    pub routers: Vec<PlanRouter>,
    /// Dependencies between parts.
    pub afters: Vec<After>,
    pub workers: Vec<PlanWorker>,
    /// Hints for the user, such as a rate that was replaced or an idle core.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPort {
    pub name: String,
    pub address: String,
    /// The longest frame passed to the port, in octets without FCS; 0: none.
    pub max_frame: u32,
    /// The longest frame that the engine segments before the port; 0: none.
    pub cut_frame: u32,
    /// The port belongs to another node.
    pub elsewhere: bool,
    /// Speed of the port's link in bits per second, counting preambles and gaps; `None` unless on
    /// virtual time.
    pub virtual_bps: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct PlanStream {
    pub name: String,
    pub port: usize,
    pub group: Option<String>,
    pub program: Arc<Program>,
    pub gap: Gap,
    pub law: GapLaw,
    pub pattern: Pattern,
    /// The seed of the gap law.
    pub seed: u64,
    /// Number of frames that former runs have sent: the first frame of this one.
    pub sent: u64,
    pub start: Picos,
    /// Time after the stream's start from which no further frame is due.
    pub lasts: Option<Picos>,
    /// The stream begins when the engine reports that the part before it has ended.
    pub waits: bool,
    pub self_start: bool,
    pub next: Option<squall_profile::Next>,
    /// The hosts that supply fields of the frames.
    pub hosts: Option<Arc<StreamHosts>>,
    /// The routes to which the frames go.
    pub routes: Option<Arc<StreamRoutes>>,
    /// After its first frames: the further phases in which receivers count its routes.
    pub phases: Vec<LanePhase>,
    pub late: Late,
    /// Mean frames per second on the wire while active; `None`: as fast as the port allows.
    pub asked_pps: Option<f64>,
    /// Mean length on the wire, in octets with FCS.
    pub mean_len: f64,
    pub division: StreamDivision,
    pub placement: Placement,
}

/// Which part or node sends the frames of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDivision {
    /// This part sends all frames.
    Here,
    /// Another part sends all frames.
    OtherPart,
    /// The stream's port belongs to another node.
    Elsewhere,
    /// This part sends frames `index`, `index + of` ...
    Frames,
}

/// The workers that send a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One worker of the port.
    Worker(usize),
    /// All `n` workers of the port: the i-th sends frames i, i + n, i + 2n ...
    Shared,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanWorker {
    /// The queues to send on: (port, queue).
    pub tx: Vec<(usize, u32)>,
    pub rx: Vec<(usize, u32)>,
    /// The CPU to which it is pinned; `None`: the scheduler moves it freely.
    pub cpu: Option<u32>,
}

impl PlanStream {
    /// The configured bits per second, counting preamble, SFD and gap; `None`: as fast as the port
    /// allows.
    pub fn bps_l1(&self) -> Option<f64> {
        Some(self.asked_pps? * 8.0 * (self.mean_len + f64::from(L1_OVERHEAD)))
    }

    /// The mean rate in frames per second over `span`, from the first frame on. For stages this is
    /// less than the highest rate. For on and off times it exceeds the long-term mean until the
    /// first silence is over: five seconds of `on = "5 s", off = "5 s"` have no silence.
    pub fn mean_rate_within(&self, span: Nanos) -> Option<f64> {
        let asked = self.asked_pps?;
        let even = !matches!(self.law, GapLaw::OnOff { .. } | GapLaw::Shaped { .. });
        // Gaps between bursts would lie outside the span, and shift the sending times.
        if even || span == Nanos::ZERO || self.pattern.bursts > 1 {
            return Some(asked);
        }
        let passed = match &self.law {
            GapLaw::Shaped { shape, .. } => {
                let first = shape.instant(Picos(0))?.as_nanos();
                shape.passed(first + span)
            }
            _ => Picos::from(span),
        };
        let active = self.law.active_within(passed).0 as f64 / 1e12;
        Some(asked / self.law.duty() * active / span.as_secs_f64())
    }

    /// The highest rate in frames per second, for example within a burst; 0 for a stream that sends
    /// as fast as the port allows.
    pub fn fastest_pps(&self) -> f64 {
        let seconds = self.gap.seconds(self.program.sizes().mean());
        if seconds > 0.0 { 1.0 / seconds } else { 0.0 }
    }

    /// Whether the stream continues until the run ends.
    pub fn is_endless(&self) -> bool {
        self.pattern.total().is_none() && self.lasts.is_none()
    }

    /// The departures of the stream if it begins at `start`, with its first frame.
    pub fn timeline(&self, start: Picos) -> Timeline {
        Timeline::new(self.gap, self.law.clone(), self.pattern, self.seed, start)
    }

    /// The departures of the stream if it continues at `start`, after the frames of former runs.
    pub fn rest(&self, start: Picos) -> Timeline {
        self.timeline(start).after(self.pattern.in_round(self.sent))
    }
}

impl Plan {
    /// The name of part `part`.
    pub fn name_of(&self, part: Part) -> &str {
        match part {
            Part::Stream(i) => self.streams.get(i).map(|stream| stream.name.as_str()),
            Part::Replay(i) => self.replays.get(i).map(|replay| replay.name.as_str()),
            Part::Template(i) => {
                let flows = self.flows.as_ref();
                flows.and_then(|flows| Some(flows.load.templates.get(i)?.name.as_str()))
            }
        }
        .unwrap_or_default()
    }

    /// The dependency of `part`.
    pub fn after(&self, part: Part) -> Option<&After> {
        self.afters.iter().find(|after| after.then.contains(&part))
    }

    /// The stop condition that workers must check.
    pub fn watched(&self) -> Stop {
        if self.counted { Stop { packets: None, octets: None, ..self.stop } } else { self.stop }
    }

    /// Whether the run only receives.
    pub fn only_receives(&self) -> bool {
        self.only_hosts() && self.hosts.is_empty() && self.routers.is_empty()
    }

    /// The same plan with a different key in its signatures.
    pub fn keyed(mut self, key: u16) -> Self {
        let signed = self.streams.iter_mut().filter(|stream| stream.program.signature().is_some());
        signed.for_each(|stream| Arc::make_mut(&mut stream.program).set_key(key));
        Self { key, ..self }
    }

    /// Whether a template of the flows has TLS.
    pub fn has_tls(&self) -> bool {
        let mut loads = self.flows.iter().map(|flows| &flows.load);
        loads.any(|load| load.templates.iter().any(|template| template.tls.is_some()))
    }

    /// Writes the secrets of all TLS sessions of flows to a file.
    pub fn log_keys(&mut self, log: &KeyLog) {
        if let Some(flows) = &mut self.flows {
            let templates = &mut Arc::make_mut(flows).load.templates;
            templates.iter_mut().filter_map(|of| of.tls.as_mut()).for_each(|tls| tls.log_keys(log));
        }
    }

    /// Whether no other source than hosts and routers sends.
    pub fn only_hosts(&self) -> bool {
        self.streams.is_empty() && self.replays.is_empty() && self.flows.is_none()
    }

    /// The numbers of the groups whose hosts are senders or receivers of flows, streams or replays.
    pub fn shared_hosts(&self) -> HashSet<usize> {
        let loads = self.flows.iter().map(|flows| &flows.load);
        let pools = loads.flat_map(|load| load.clients.iter().chain(&load.servers));
        let streams = self.streams.iter().filter_map(|stream| stream.hosts.as_ref());
        let of_streams = streams.flat_map(|hosts| [hosts.src, hosts.dst]);
        let of_replays = self.replays.iter().filter_map(|replay| replay.hosts);
        let of_replays = of_replays.flat_map(ReplayHosts::groups);
        pools.map(|pool| pool.hosts).chain(of_streams).flatten().chain(of_replays).collect()
    }

    /// The learnt routes to which streams go.
    pub fn learnt_routes(&self) -> HashSet<LearntRoutes> {
        let streams = self.streams.iter().filter_map(|stream| stream.hosts.as_ref());
        streams.filter_map(|hosts| hosts.learnt).collect()
    }

    /// The groups of hosts on `port`, with their numbers.
    pub fn hosts_on(&self, port: usize) -> impl Iterator<Item = (usize, &PlanHosts)> {
        let here = move |of: &(usize, &PlanHosts)| of.1.port == port && !of.1.elsewhere;
        self.hosts.iter().enumerate().filter(here)
    }

    /// The routers on `port`, with their numbers.
    pub fn routers_on(&self, port: usize) -> impl Iterator<Item = (usize, &PlanRouter)> {
        let here = move |of: &(usize, &PlanRouter)| of.1.port == port && !of.1.elsewhere;
        self.routers.iter().enumerate().filter(here)
    }

    /// Whether there are hosts or routers on `port`.
    pub fn has_hosts(&self, port: usize) -> bool {
        self.hosts_on(port).next().is_some() || self.routers_on(port).next().is_some()
    }

    /// Whether some ports of the run belong to other nodes.
    pub fn has_other_nodes(&self) -> bool {
        self.ports.iter().any(|port| port.elsewhere)
    }

    /// Whether frames of streams or captures are sent through ports of other nodes, and may arrive
    /// here.
    pub fn others_send(&self) -> bool {
        let away = |stream: &PlanStream| stream.division == StreamDivision::Elsewhere;
        // The ports first, because there may be a million streams.
        let streams = || self.streams.iter().any(away);
        let replays = || self.replays.iter().any(|replay| replay.elsewhere);
        self.has_other_nodes() && (streams() || replays())
    }

    /// Number of sources that send through `port`: its streams, each replay, and flows.
    pub fn sources_of(&self, port: usize) -> usize {
        let replays = self.replays.iter().map(|replay| &replay.ports[..]);
        let others = usize::from(self.has_hosts(port));
        place::sources_of(port, &self.streams, replays, self.plays_flows(port)) + others
    }

    /// Whether flows are played on `port`.
    pub fn plays_flows(&self, port: usize) -> bool {
        self.flows.iter().any(|flows| flows.ports().any(|of| of == port))
    }

    /// The workers that play flows on `port`. Each plays the flows that it owns
    /// ([`squall_bpf::owner`]) by its index among them.
    pub fn players(&self, port: usize) -> impl Iterator<Item = usize> + '_ {
        let plays = move |worker: &usize| self.workers[*worker].tx.iter().any(|tx| tx.0 == port);
        (0..self.workers.len()).filter(move |worker| self.plays_flows(port) && plays(worker))
    }

    /// Whether only flows and hosts send: frames that no host of the run claims are counted, and
    /// measured no further.
    pub fn only_flows(&self) -> bool {
        let any = self.flows.is_some() || !self.hosts.is_empty() || !self.routers.is_empty();
        self.streams.is_empty() && self.replays.is_empty() && any
    }

    /// Indices of the replays that the worker sends.
    pub fn replays_of(&self, worker: usize) -> impl Iterator<Item = usize> + '_ {
        let serves = move |port: &usize| self.workers[worker].tx.iter().any(|tx| tx.0 == *port);
        let has = move |replay: &PlanReplay| replay.ports.first().is_some_and(serves);
        (0..self.replays.len()).filter(move |&number| has(&self.replays[number]))
    }

    /// The worker that sends replay `number`.
    pub fn worker_of_replay(&self, number: usize) -> Option<usize> {
        (0..self.workers.len()).find(|&worker| self.replays_of(worker).any(|n| n == number))
    }

    /// Whether captures are replayed on `port`.
    pub fn is_replayed_on(&self, port: usize) -> bool {
        self.replays.iter().any(|replay| replay.ports.contains(&port))
    }

    /// This part's share of the frames of stream `stream`; `None`: no frames.
    pub fn division(&self, stream: usize) -> Option<Division> {
        match self.streams[stream].division {
            StreamDivision::Here => Some(Division::WHOLE),
            StreamDivision::OtherPart | StreamDivision::Elsewhere => None,
            StreamDivision::Frames => Some(self.part),
        }
    }

    /// (first frame, step) of stream `stream` on `worker`; `None`: the worker does not send it.
    pub fn share(&self, stream: usize, worker: usize) -> Option<(u64, u64)> {
        let s = &self.streams[stream];
        let of_part = self.division(stream)?;
        let serving = |w: &PlanWorker| w.tx.iter().any(|t| t.0 == s.port);
        match s.placement {
            Placement::Worker(w) => (w == worker).then(|| of_part.share(0, 1)),
            Placement::Shared => {
                let servers: Vec<usize> =
                    (0..self.workers.len()).filter(|&w| serving(&self.workers[w])).collect();
                let i = servers.iter().position(|&w| w == worker)?;
                Some(of_part.share(i as u64, servers.len() as u64))
            }
        }
    }
}
