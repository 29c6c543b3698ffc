//! The intent as values. How it is written is in `source`.

use std::sync::Arc;

use squall_options::RunOptions;
use squall_units::Nanos;
use squall_wire::Packet;

use crate::{Attack, Flows, Replay, Stream};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// File name, or `<python>`, `<command line>`: what diagnostics call it.
    pub origin: String,
    pub ports: Vec<Port>,
    pub streams: Vec<Stream>,
    pub replays: Vec<Replay>,
    pub flows: Option<Flows>,
    pub attacks: Vec<Attack>,
    /// Feeds every random choice. Same profile, same seed: same octets. `None`: not stated, and so
    /// [`Profile::DEFAULT_SEED`].
    pub seed: Option<u64>,
    pub stop: Stop,
    /// How it is run where nobody says otherwise; its end and its seed are above.
    pub run: RunOptions,
}

impl Profile {
    /// Ports (name, address) that receive, and nothing is sent. Such a run ends when it is stopped;
    /// what is lost is then what is missing between the first and the last sequence number of a
    /// stream.
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

    /// The seed that random choices are made with.
    pub fn effective_seed(&self) -> u64 {
        self.seed.unwrap_or(Self::DEFAULT_SEED)
    }
}

/// When the whole run ends; the first that is reached. Nothing set: when every stream has ended.
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
    /// `af_packet:veth-a,queue=0`: see the address syntax in the guide.
    pub address: String,
    pub at: At,
}

/// Where something stands in its source: for errors found later than parsing. 1-based; 0: no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PacketSource {
    /// Layers as text; headers are checked by parsing, lengths by the plan.
    Layers(Packet),
    /// The octets of a frame without FCS: from hex, or from Python.
    Octets(Arc<[u8]>),
    /// `capture.pcap#3`: frame 3, from 1, of a capture.
    Capture { path: String, number: u64 },
}

/// Frame lengths, octets with FCS.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SizeLaw {
    /// As long as the packet is (at least 64).
    #[default]
    Natural,
    Fixed(u32),
    /// One after the other, over and over.
    List(Vec<u32>),
    /// From the first to the second by the third, over and over.
    Range {
        min: u32,
        max: u32,
        step: u32,
    },
    Uniform {
        min: u32,
        max: u32,
    },
    /// Rounded, drawn again until within min..=max.
    Normal {
        mean: f64,
        sd: f64,
        min: u32,
        max: u32,
    },
    /// Drawn at random in proportion to the weights.
    Weights(Vec<(u32, u32)>),
}

/// Simple IMIX, 7:4:1 of 64, 594 and 1518, evenly mixed: a fixed order, so that every twelve frames
/// have the mix.
pub const IMIX: [u32; 12] = [64, 594, 64, 64, 594, 64, 1518, 594, 64, 64, 594, 64];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Continuous,
    /// So many frames, then done.
    Burst(u64),
    /// `bursts` times `packets` frames; `gap` from the last frame's departure of one burst (plus
    /// its own inter-departure gap) to the first of the next.
    Bursts { bursts: u64, packets: u64, gap: Nanos },
}

/// Which lengths and checksums follow what changes from frame to frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    #[default]
    All,
    /// Those of these fields; all others stay as the packet has them.
    Only(Vec<String>),
}

/// When a burst has ended: what `gap` and the `next` stream's delay are counted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BurstEnd {
    /// One inter-departure gap after its last frame.
    #[default]
    Gap,
    /// When its last frame departs.
    Frame,
}

/// What starts when this stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Index into [`Profile::streams`]; may be the stream itself.
    pub stream: usize,
    /// How often this arrow may be taken in all; `None`: for ever.
    pub times: Option<u64>,
}

/// Law of the gaps between departures; the mean is what the rate says.
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
    /// Gaps in nanoseconds, one a line, over and over; scaled so that their mean is what the rate
    /// says, unless the rate is `max`.
    File {
        path: String,
    },
}

/// What to do with a frame whose instant has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// What is owed up to 0.75 ms of the schedule follows at once; the rest is regained at 0.8 %
    /// above the rate, so that no burst leaves that the profile did not ask for.
    #[default]
    Smooth,
    /// Send late ones as fast as the port goes until the schedule is met again.
    CatchUp,
    /// Skip those that are more than one gap late; they count as not sent, reason `late`.
    Drop,
    /// Shift the rest of the schedule.
    Stretch,
}

/// How values follow each other. Each is a function of the frame's index in its stream, so any core
/// can compute it.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// From `init` by `step`, wrapping within `min..=max`. A decrement has a negative step.
    Step { min: u128, max: u128, init: u128, step: i128 },
    /// One after the other, over and over. From a list or a file.
    List { values: Vec<u128>, init: usize },
    /// Uniform over `min..=max`; with `limit`, that many draws, then the same again. `seed` apart
    /// from the profile's.
    Random { min: u128, max: u128, limit: Option<u64>, seed: Option<u64> },
    /// Drawn in proportion to the weights.
    Weighted { values: Vec<(u128, u32)> },
    /// As [`Op::Step`] or [`Op::List`], but advances by one only when the variable of `vary[of]`
    /// (lower index, itself a step or list or dependent) wraps. A tuple generator (addresses x
    /// ports) is two of these.
    After { of: usize, then: Box<Op> },
}
