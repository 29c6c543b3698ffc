//! `compile(Profile, port limits, inputs, cores) -> Plan`: what each worker will send, of streams,
//! captures and flows, from what template, with which field operations, at which instants. A value:
//! it can be printed ([`text`]), compared ([`Plan::diff`]) and tested.
//!
//! Pure but for files that a profile names, which are read through [`Assets`]; rules are solved
//! before, and what they come to is handed over ([`Inputs`]). Does not know backends or clocks.
#![forbid(unsafe_code)]

mod after;
mod compile;
mod cut;
mod diff;
pub mod explain;
pub mod flows;
mod place;
mod rate;
pub mod replays;
mod source;
mod survey;
pub mod text;

use std::{io, sync::Arc};

use squall_apps::{Import, ImportOptions};
use squall_bpf::classic::Filter;
use squall_profile::{Late, Stop};
use squall_program::{Gap, GapLaw, Pattern, Program, Timeline};
use squall_replay::Input;
use squall_units::{Division, L1_OVERHEAD, MacAddr, Nanos, Picos, Segmentation};

pub use after::{After, Part};
pub use compile::compile;
pub use diff::Change;
pub use flows::{FlowSide, PlanFlows, PlannedLoad, PlannedPool, PlannedTemplate, Spoken};
pub use replays::PlanReplay;
pub use source::SourceId;
pub use squall_options::Multiplier;
pub use survey::survey;

/// What a plan has to know of a port. `PortFacts` without the parts that only backends know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// Largest frame, octets without FCS.
    pub max_frame: u32,
    /// Of the interface, where there is one.
    pub mac: Option<MacAddr>,
    pub speed_bps: Option<u64>,
    /// Queues that can send at once.
    pub tx_queues: u32,
    /// 0: nothing can be received, or nothing is to be.
    pub rx_queues: u32,
    /// What leaves by queue i arrives in queue i of the other end (a loop), so as many are listened
    /// to as are sent on. Else the port spreads what comes over all of its queues.
    pub paired_queues: bool,
    /// NUMA node of the device, where there is one.
    pub node: Option<u32>,
    /// Runs on virtual time: nothing leaves "as fast as possible", because there is no such thing.
    pub virtual_time: bool,
    /// Who cuts frames that are to be cut.
    pub segmentation: Segmentation,
    /// The port is another node's: it is planned as any other, and nothing is sent or received.
    pub elsewhere: bool,
}

/// Files that a profile names, already checked to be wanted.
pub trait Assets {
    /// # Errors
    /// As reading the file does.
    fn file(&self, path: &str) -> io::Result<Vec<u8>>;
    /// A file named inside packet text: its path is from the profile's folder.
    ///
    /// # Errors
    /// As reading the file does.
    fn payload(&self, path: &str) -> io::Result<Vec<u8>>;
    /// Octets without FCS of frame `number` (from 1) of a capture.
    ///
    /// # Errors
    /// As text, when there is no such file or frame.
    fn capture_frame(&self, path: &str, number: u64) -> Result<Vec<u8>, String>;
    /// A capture that is opened when the run begins; `-` is the standard input.
    fn capture(&self, path: &str) -> Input;
    /// The conversations of a capture, of the packets that `filter` takes in the language of
    /// tcpdump.
    ///
    /// # Errors
    /// As text: there is no such file, it is no capture, it has more than `options` allow, or the
    /// filter says nothing.
    fn conversations(
        &self,
        path: &str,
        filter: Option<&str>,
        options: &ImportOptions,
    ) -> Result<Import, String>;
    /// What takes the Ethernet frames of `expression`, in the language of tcpdump.
    ///
    /// # Errors
    /// As text, for an expression that says nothing, or where nobody compiles one.
    fn filter(&self, expression: &str) -> Result<Filter, String>;
}

/// What a plan is made of beside the profile.
pub struct Inputs<'a> {
    pub assets: &'a dyn Assets,
    /// Captures that are replayed beside those of the profile, behind them: those of rules, say.
    pub replays: Vec<PlanReplay>,
    /// Of a run that goes on by this plan, the replays of the profile that it was opened with: only
    /// their speeds may differ.
    pub opened: Option<&'a [squall_profile::Replay]>,
    /// Attacks that TCP and UDP of our own speak.
    pub spoken: Option<Spoken<'a>>,
    /// Whether nobody waits for the plan any more: it ends soon, with an error.
    pub abandoned: &'a dyn Fn() -> bool,
}

impl<'a> Inputs<'a> {
    /// Nothing but the profile and its files.
    pub fn of(assets: &'a dyn Assets) -> Self {
        Self { assets, replays: Vec::new(), opened: None, spoken: None, abandoned: &|| false }
    }
}

/// How the profile is to be run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Workers; `None`: one a sending port, and one for receiving if a CPU is left.
    pub cores: Option<usize>,
    /// CPUs of the machine, at least 1.
    pub cpus: usize,
    /// CPUs that workers may have to themselves, the better ones first; `None`: the system moves
    /// them as it likes.
    pub pin: Option<Vec<Cpu>>,
    pub multiplier: Option<Multiplier>,
    /// Which part of the whole is planned: one of the runs that together send all of it.
    pub part: Division,
}

/// A CPU as a worker's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// As the system numbers it.
    pub number: u32,
    /// CPUs of one core (SMT siblings) have the same.
    pub core: u32,
    /// NUMA node.
    pub node: u32,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// That of the signatures ([`squall_program::signature`]).
    pub key: u16,
    /// The part of the whole that this is: a function of the profile alone, whatever the machine.
    pub part: Division,
    pub stop: Stop,
    /// The packets or octets of `stop` are already the length of the one stream, and so each
    /// worker's share of it.
    pub counted: bool,
    pub ports: Vec<PlanPort>,
    pub streams: Vec<PlanStream>,
    pub replays: Vec<PlanReplay>,
    pub flows: Option<Arc<PlanFlows>>,
    /// Who waits for whom.
    pub afters: Vec<After>,
    pub workers: Vec<PlanWorker>,
    /// What the user should know: a rate that was replaced, a core that has nothing to do.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPort {
    pub name: String,
    pub address: String,
    /// The longest frame that the port is given, octets without FCS; 0: nothing is sent.
    pub max_frame: u32,
    /// The longest that the engine cuts for it; 0: none.
    pub cut_frame: u32,
    /// Another node's.
    pub elsewhere: bool,
    /// On virtual time, bits per second that its link carries, preambles and gaps included.
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
    /// Of the departure law.
    pub seed: u64,
    pub start: Picos,
    /// No frame is due so long after its start.
    pub lasts: Option<Picos>,
    /// Begins when it is told that what it comes after has ended.
    pub waits: bool,
    pub self_start: bool,
    pub next: Option<squall_profile::Next>,
    pub late: Late,
    /// Mean frames a second on the wire while active; `None`: as fast as the port goes.
    pub asked_pps: Option<f64>,
    /// Mean length on the wire, octets with FCS.
    pub mean_len: f64,
    pub division: StreamDivision,
    pub placement: Placement,
}

/// Whose the frames of a stream are, of the parts and nodes that a whole is divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDivision {
    /// All of them are this part's.
    Here,
    /// All of them are another part's.
    OtherPart,
    /// Their port is another node's.
    Elsewhere,
    /// Frames `index`, `index + of` ... are this part's.
    Frames,
}

/// Which workers send a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One of those that serve the port.
    Worker(usize),
    /// All that serve the port: of `n`, the i-th sends frames i, i + n, i + 2n ...
    Shared,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanWorker {
    /// (port, queue)
    pub tx: Vec<(usize, u32)>,
    pub rx: Vec<(usize, u32)>,
    /// The CPU that it has to itself; `None`: the system moves it as it likes.
    pub cpu: Option<u32>,
}

impl PlanStream {
    /// Asked bits a second with preamble, SFD and gap; none: as fast as the port goes.
    pub fn bps_l1(&self) -> Option<f64> {
        Some(self.asked_pps? * 8.0 * (self.mean_len + f64::from(L1_OVERHEAD)))
    }

    /// Frames a second that are asked for on average from the first frame on, within `span`. In
    /// stages that is less than the highest rate. With on and off times it is more than the mean
    /// over all time until the first silence is over: five seconds of `on = "5 s", off = "5 s"` have
    /// no silence at all.
    pub fn asked_within(&self, span: Nanos) -> Option<f64> {
        let asked = self.asked_pps?;
        let even = !matches!(self.law, GapLaw::OnOff { .. } | GapLaw::Shaped { .. });
        // Gaps between bursts are not in the span, and shift the times of sending.
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

    /// Frames handed over a second where it sends fastest, within a burst, say; 0 of one that sends
    /// as fast as the port goes.
    pub fn fastest_pps(&self) -> f64 {
        let seconds = self.gap.seconds(self.program.sizes().mean());
        if seconds > 0.0 { 1.0 / seconds } else { 0.0 }
    }

    /// Whether it goes on until the run ends.
    pub fn is_endless(&self) -> bool {
        self.pattern.total().is_none() && self.lasts.is_none()
    }

    /// The stream's departures, the first at `start`.
    pub fn timeline(&self, start: Picos) -> Timeline {
        Timeline::new(self.gap, self.law.clone(), self.pattern, self.seed, start)
    }
}

impl Plan {
    /// What a part is called.
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

    /// What `part` waits for.
    pub fn after(&self, part: Part) -> Option<&After> {
        self.afters.iter().find(|after| after.then.contains(&part))
    }

    /// What workers have to watch to end the run.
    pub fn watched(&self) -> Stop {
        if self.counted { Stop { packets: None, octets: None, ..self.stop } } else { self.stop }
    }

    /// Whether nothing is sent: the run only receives.
    pub fn only_receives(&self) -> bool {
        self.streams.is_empty() && self.replays.is_empty() && self.flows.is_none()
    }

    /// The same with another key in its signatures.
    pub fn keyed(mut self, key: u16) -> Self {
        let signed = self.streams.iter_mut().filter(|stream| stream.program.signature().is_some());
        signed.for_each(|stream| Arc::make_mut(&mut stream.program).set_key(key));
        Self { key, ..self }
    }

    /// Whether other nodes have ports of the run.
    pub fn has_other_nodes(&self) -> bool {
        self.ports.iter().any(|port| port.elsewhere)
    }

    /// Whether frames of streams or captures leave by ports of other nodes, which may arrive here.
    pub fn others_send(&self) -> bool {
        let away = |stream: &PlanStream| stream.division == StreamDivision::Elsewhere;
        self.streams.iter().any(away) || self.replays.iter().any(|replay| replay.elsewhere)
    }

    /// How many sources send by `port`: its streams, each replay, flows.
    pub fn sources_of(&self, port: usize) -> usize {
        let replays = self.replays.iter().map(|replay| &replay.ports[..]);
        place::sources_of(port, &self.streams, replays, self.plays_flows(port))
    }

    /// Whether flows are played on `port`.
    pub fn plays_flows(&self, port: usize) -> bool {
        self.flows.iter().any(|flows| flows.ports().any(|of| of == port))
    }

    /// The workers that play flows on `port`: each those that it owns ([`squall_bpf::owner`]), by
    /// its place among them.
    pub fn players(&self, port: usize) -> impl Iterator<Item = usize> + '_ {
        let plays = move |worker: &usize| self.workers[*worker].tx.iter().any(|tx| tx.0 == port);
        (0..self.workers.len()).filter(move |worker| self.plays_flows(port) && plays(worker))
    }

    /// Whether flows are all that is sent.
    pub fn only_flows(&self) -> bool {
        self.streams.is_empty() && self.replays.is_empty() && self.flows.is_some()
    }

    /// Numbers of the replays that `worker` has.
    pub fn replays_of(&self, worker: usize) -> impl Iterator<Item = usize> + '_ {
        let serves = move |port: &usize| self.workers[worker].tx.iter().any(|tx| tx.0 == *port);
        let has = move |replay: &PlanReplay| replay.ports.first().is_some_and(serves);
        (0..self.replays.len()).filter(move |&number| has(&self.replays[number]))
    }

    /// The worker that has replay `number`.
    pub fn worker_of_replay(&self, number: usize) -> Option<usize> {
        (0..self.workers.len()).find(|&worker| self.replays_of(worker).any(|n| n == number))
    }

    /// Whether captures are replayed on `port`.
    pub fn is_replayed_on(&self, port: usize) -> bool {
        self.replays.iter().any(|replay| replay.ports.contains(&port))
    }

    /// Which of the frames of stream `stream` are this part's; `None`: none are.
    pub fn division(&self, stream: usize) -> Option<Division> {
        match self.streams[stream].division {
            StreamDivision::Here => Some(Division::WHOLE),
            StreamDivision::OtherPart | StreamDivision::Elsewhere => None,
            StreamDivision::Frames => Some(self.part),
        }
    }

    /// (first frame, distance) of stream `stream` on `worker`; `None`: not sent there.
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
