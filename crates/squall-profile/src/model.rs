//! The profile as values. The text forms are in `source`.

use std::sync::Arc;

use squall_options::RunOptions;
use squall_units::Nanos;
use squall_wire::Packet;

use crate::{Attack, Flows, HostGroup, Replay, Router, Stream};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The name for diagnostics: a file name, `<python>` or `<command line>`.
    pub origin: String,
    pub ports: Vec<Port>,
    pub streams: Vec<Stream>,
    pub replays: Vec<Replay>,
    pub flows: Option<Flows>,
    pub attacks: Vec<Attack>,
    pub hosts: Vec<HostGroup>,
    pub routers: Vec<Router>,
    /// Seed for all random choices: the same profile and seed give the same octets. `None` means
    /// [`Profile::DEFAULT_SEED`].
    pub seed: Option<u64>,
    pub stop: Stop,
    /// Defaults for the options of a run. Its end and its seed are separate fields.
    pub run: RunOptions,
}

impl Profile {
    /// A profile that only receives, on the given ports (name, address). It ends when it is
    /// stopped. The loss of a stream is then the number of frames missing between the first and the
    /// last sequence number received.
    pub fn listening<N: Into<String>, A: Into<String>>(
        ports: impl IntoIterator<Item = (N, A)>,
    ) -> Self {
        let port = |(name, address): (N, A)| Port {
            name: name.into(),
            address: address.into(),
            at: At::default(),
        };
        let ports = ports.into_iter().map(port).collect();
        Self { origin: "<listen>".into(), ports, ..Self::default() }
    }
}

impl Profile {
    pub const DEFAULT_SEED: u64 = 1;

    /// The seed with the default applied.
    pub fn effective_seed(&self) -> u64 {
        self.seed.unwrap_or(Self::DEFAULT_SEED)
    }
}

/// The end of the whole run: the first condition that is met. If there is none, the run ends when
/// all streams have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    pub duration: Option<Nanos>,
    pub packets: Option<u64>,
    /// Octets of frames with FCS.
    pub octets: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    pub name: String,
    /// An address such as `af_packet:veth-a,queue=0`. The guide describes the syntax.
    pub address: String,
    pub at: At,
}

/// The position of a value in the source, for errors that are found after parsing. 1-based; 0 if
/// there is no position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PacketSource {
    /// Layers as text. Parsing validates the headers, and the plan validates the lengths.
    Layers(Packet),
    /// The octets of a frame without FCS, from hexadecimal or from Python.
    Octets(Arc<[u8]>),
    /// `capture.pcap#3`: frame 3 of a capture (1-based).
    Capture { path: String, number: u64 },
}

/// Frame lengths, in octets with FCS.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SizeLaw {
    /// The length of the packet, at least 64.
    #[default]
    Natural,
    Fixed(u32),
    /// In order, repeated.
    List(Vec<u32>),
    /// From `min` to `max` by `step`, repeated.
    Range {
        min: u32,
        max: u32,
        step: u32,
    },
    Uniform {
        min: u32,
        max: u32,
    },
    /// Rounded, redrawn until within min..=max.
    Normal {
        mean: f64,
        sd: f64,
        min: u32,
        max: u32,
    },
    /// Drawn at random in proportion to the weights.
    Weights(Vec<(u32, u32)>),
}

/// Simple IMIX, 7:4:1 of 64, 594 and 1518, in a fixed, evenly mixed order, so that any twelve
/// frames have the exact mix.
pub const IMIX: [u32; 12] = [64, 594, 64, 64, 594, 64, 1518, 594, 64, 64, 594, 64];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Continuous,
    /// This many frames, after which the stream ends.
    Burst(u64),
    /// `bursts` times `packets` frames; `gap` from the departure of a burst's last frame (plus its
    /// own inter-departure gap) to the first frame of the next.
    Bursts { bursts: u64, packets: u64, gap: Nanos },
}

/// Which lengths and checksums follow the fields that change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    #[default]
    All,
    /// Only these fields; all others stay as in the packet.
    Only(Vec<String>),
}

/// The end of a burst: the start of `gap` and of the `next` stream's delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BurstEnd {
    /// One inter-departure gap after its last frame.
    #[default]
    Gap,
    /// The departure of its last frame.
    Frame,
}

/// The stream that starts when this one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Index into [`Profile::streams`]; may be the stream itself.
    pub stream: usize,
    /// The total number of times; `None`: endless.
    pub times: Option<u64>,
}

/// The distribution of the gaps between departures; the rate sets the mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Departures {
    #[default]
    Constant,
    /// Poisson departures.
    Exponential,
    /// Mean times 1-spread ..= 1+spread; 0 < spread <= 1.
    Uniform {
        spread: f64,
    },
    /// `sd` as a share of the mean; negative draws count as 0.
    Normal {
        sd: f64,
    },
    /// Shape above 1; scale follows from the mean.
    Pareto {
        shape: f64,
    },
    Weibull {
        shape: f64,
    },
    Gamma {
        shape: f64,
    },
    /// Constant gaps while on, silence while off; the rate is that of the on time.
    OnOff {
        on: Nanos,
        off: Nanos,
    },
    /// Gaps in nanoseconds, one per line, repeated; scaled to the rate unless it is `max`.
    File {
        path: String,
    },
}

/// The policy for a frame whose departure time has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// Up to 0.75 ms of overdue frames follow at once; the rest is regained at 0.8 % above the
    /// rate, so that no burst leaves that the profile did not ask for (ADR 0050).
    #[default]
    Smooth,
    /// Send late frames as fast as the port allows until the schedule is met again.
    CatchUp,
    /// Skip frames that are more than one gap late; they count as not sent, reason `late`.
    Drop,
    /// Shift the rest of the schedule.
    Stretch,
}

/// The order of values. Each is determined by the frame's index in its stream, so any core can
/// compute it.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// From `init` by `step`, wrapping within `min..=max`. A decrement has a negative step.
    Step { min: u128, max: u128, init: u128, step: i128 },
    /// In order, repeated. From a list or a file.
    List { values: Vec<u128>, init: usize },
    /// Uniform over `min..=max`; with `limit`, that many draws, repeated. `seed` is independent of
    /// the profile's.
    Random { min: u128, max: u128, limit: Option<u64>, seed: Option<u64> },
    /// Drawn in proportion to the weights.
    Weighted { values: Vec<(u128, u32)> },
    /// Like [`Op::Step`] or [`Op::List`], but advances by one only when the variable of `vary[of]`
    /// (lower index, itself a step, a list or dependent) wraps. A tuple generator (addresses x
    /// ports) is two of these.
    After { of: usize, then: Box<Op> },
}
