//! `compile(Profile, port limits, cores) -> Plan`: what each worker will send, from what template,
//! with which field operations, at which instants. A value: it can be printed ([`explain`]),
//! compared ([`Plan::diff`]) and tested.
//!
//! Pure but for files that a profile names, which are read through [`Assets`]. Does not know
//! backends or clocks.
#![forbid(unsafe_code)]

mod compile;
mod cut;
mod diff;
pub mod explain;
mod place;
mod rate;

use std::{io, sync::Arc};

use squall_profile::{Late, Stop};
use squall_program::{Gap, GapLaw, Pattern, Program, Timeline};
use squall_units::{Picos, Rate, Segmentation};

pub use compile::compile;
pub use diff::Change;

/// What a plan has to know of a port. `PortFacts` without the parts that only backends know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// Largest frame, octets without FCS.
    pub max_frame: u32,
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
    /// Ports that captures are replayed on, in the order of the replay; one worker serves them all.
    pub replay: Vec<usize>,
    /// Ports that flows are played on.
    pub flows: Vec<FlowPort>,
}

/// A port that flows are played on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPort {
    pub port: usize,
    /// The longest frame of theirs, octets without FCS.
    pub max_frame: u32,
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

/// `--mult`: over the whole profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Multiplier {
    /// Every rate times `num / den`.
    Factor { num: u64, den: u64 },
    /// The streams of each port together come to this.
    Total(Rate),
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub stop: Stop,
    /// The packets or octets of `stop` are already the length of the one stream, and so each
    /// worker's share of it.
    pub counted: bool,
    pub ports: Vec<PlanPort>,
    pub streams: Vec<PlanStream>,
    /// Ports that captures are replayed on, in the order of the replay.
    pub replay: Vec<usize>,
    /// Ports that flows are played on.
    pub flows: Vec<usize>,
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
    pub self_start: bool,
    pub next: Option<squall_profile::Next>,
    pub late: Late,
    /// Mean frames a second on the wire while active; `None`: as fast as the port goes.
    pub asked_pps: Option<f64>,
    /// Mean length on the wire, octets with FCS.
    pub mean_len: f64,
    pub placement: Placement,
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
    /// Frames handed over a second where it sends fastest, within a burst, say; 0 of one that sends
    /// as fast as the port goes.
    pub fn fastest_pps(&self) -> f64 {
        let seconds = self.gap.seconds(self.program.sizes().mean());
        if seconds > 0.0 { 1.0 / seconds } else { 0.0 }
    }

    /// The stream's departures, the first at `start`.
    pub fn timeline(&self, start: Picos) -> Timeline {
        Timeline::new(self.gap, self.law.clone(), self.pattern, self.seed, start)
    }
}

impl Plan {
    /// What workers have to watch to end the run.
    pub fn watched(&self) -> Stop {
        if self.counted { Stop { packets: None, octets: None, ..self.stop } } else { self.stop }
    }

    /// Whether nothing is sent: the run only receives.
    pub fn only_receives(&self) -> bool {
        self.streams.is_empty() && self.replay.is_empty() && self.flows.is_empty()
    }

    /// How many kinds of sources (streams, captures, flows) send by `port`.
    pub fn sources_of(&self, port: usize) -> usize {
        usize::from(self.streams.iter().any(|stream| stream.port == port))
            + usize::from(self.replay.contains(&port))
            + usize::from(self.flows.contains(&port))
    }

    /// Whether flows are all that is sent.
    pub fn only_flows(&self) -> bool {
        self.streams.is_empty() && self.replay.is_empty() && !self.flows.is_empty()
    }

    /// Whether `worker` is the one that replays captures.
    pub fn replays(&self, worker: usize) -> bool {
        let first = |port: &usize| self.workers[worker].tx.iter().any(|tx| tx.0 == *port);
        self.replay.first().is_some_and(first)
    }

    /// (first frame, distance) of stream `stream` on `worker`; `None`: not sent there.
    pub fn share(&self, stream: usize, worker: usize) -> Option<(u64, u64)> {
        let s = &self.streams[stream];
        let serving = |w: &PlanWorker| w.tx.iter().any(|t| t.0 == s.port);
        match s.placement {
            Placement::Worker(w) => (w == worker).then_some((0, 1)),
            Placement::Shared => {
                let servers: Vec<usize> =
                    (0..self.workers.len()).filter(|&w| serving(&self.workers[w])).collect();
                let i = servers.iter().position(|&w| w == worker)?;
                Some((i as u64, servers.len() as u64))
            }
        }
    }
}
