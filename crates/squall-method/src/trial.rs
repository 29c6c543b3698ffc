//! A trial and what came of it: all that passes between a method and the machines that send.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is offered to the device under test, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// For the trial list: `throughput, 64 octets`.
    pub label: String,
    pub lanes: Vec<Lane>,
    /// Seconds from the first departure to the last one's slot.
    pub duration_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Connections, beside or in the place of streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowLoad>,
    /// Whether lanes are counted second by second.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seconds: bool,
}

/// Connections that clients open to servers, through the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowLoad {
    /// Connections that begin per second, of all templates together.
    pub cps: f64,
    /// Connections in all; `None`: as many as begin in the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What clients and servers say; `None`: the templates of the profile, in their shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Of the trial's duration, the time of a linear rise from 0, and of a fall to 0.
    #[serde(default)]
    pub ramp_up_s: f64,
    #[serde(default)]
    pub ramp_down_s: f64,
    /// Settings of TCP, of both sides: `congestion_control`, `receive_buffer`, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp: BTreeMap<String, String>,
}

/// HTTP/1.1 GETs, between the clients and servers of the profile's first template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Octets of a response's body.
    pub object_octets: u64,
    /// Requests of each connection.
    pub requests: u32,
    /// Between a response and the next request.
    #[serde(default)]
    pub think_s: f64,
    /// Over TLS.
    #[serde(default)]
    pub tls: bool,
}

/// A command that is run while the trial sends: what resets a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Since the start of the trial.
    pub at_s: f64,
    /// For the shell.
    pub command: String,
}

/// A stream of the rig, as one trial sends it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// Unique in the trial; the results have it.
    pub name: String,
    /// The stream of the rig's profile whose frames are sent; not looked at with a `template`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stream: String,
    /// Frames that the method makes itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// Octets with FCS; `None`: as the stream says.
    pub frame_size: Option<u32>,
    /// Frames per second.
    pub rate_fps: f64,
    /// Ends after this many frames; `None`: at the end of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Begins at this time, ...
    #[serde(default)]
    pub start_s: f64,
    /// ... and ends this much later; `None`: at the end of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
}

/// A stream that is in no profile, in the words of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The port that sends it.
    pub port: String,
    /// `eth(src=02:00:00:00:00:01)/ipv4/udp`.
    pub packet: String,
    /// As `[[stream.vary]]` has it.
    #[serde(default)]
    pub vary: Vec<Value>,
    /// Without a signature, as a host sends it: not measured at a receiver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

impl Lane {
    /// Frames that are due in a trial of `duration_s`.
    pub fn due(&self, duration_s: f64) -> u64 {
        let active = self.active_s(duration_s);
        // The frame at 0 is one of them.
        let slots = (active * self.rate_fps - 1e-9).ceil().max(0.0) as u64;
        self.frames.map_or(slots, |frames| frames.min(slots))
    }

    pub fn active_s(&self, duration_s: f64) -> f64 {
        let rest = (duration_s - self.start_s).max(0.0);
        self.duration_s.map_or(rest, |active| active.min(rest))
    }
}

/// What came of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// In the order of the trial's.
    pub lanes: Vec<LaneMeasured>,
    /// All frames of each port of the rig, whosever they are.
    #[serde(default)]
    pub ports: Vec<PortMeasured>,
    #[serde(default)]
    pub flows: Option<FlowsMeasured>,
    /// Why the trial is not to be counted: the generator's verdict on itself; empty: it kept to
    /// what it was asked for.
    #[serde(default)]
    pub not_kept: Vec<String>,
    /// Seconds of CPU time.
    #[serde(default)]
    pub cpu_s: f64,
}

/// What came of a lane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LaneMeasured {
    pub name: String,
    pub sent: u64,
    /// Without duplicates.
    pub received: u64,
    pub lost: u64,
    #[serde(default)]
    pub duplicates: u64,
    #[serde(default)]
    pub reordered: u64,
    /// Frames per second over the lane's own time.
    pub offered_fps: f64,
    /// Frames per second from the first to the last arrival; `None` of fewer than two.
    pub output_fps: Option<f64>,
    pub delay: Option<Delay>,
    /// Each delay is known within plus or minus this, as sender and receiver have different clocks;
    /// `None`: they have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_bound_ns: Option<u64>,
    /// IPDV of consecutive frames (RFC 3393), magnitude.
    pub ipdv: Option<Delay>,
    /// The most frames that were lost in sequence, and how often such a period began (RFC 3357).
    #[serde(default)]
    pub longest_loss: u64,
    #[serde(default)]
    pub loss_periods: u64,
    /// When the last frame that was lost had been due, from the lane's start; where it is known.
    #[serde(default)]
    pub last_loss_s: Option<f64>,
    /// Second by second, if the trial asks for it and has a real clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<Second>,
    /// Each port's own, where more than one received the lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<ReceiverMeasured>,
}

/// What came of a lane at one of its receivers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverMeasured {
    pub port: String,
    /// Duplicates included.
    pub received: u64,
    pub lost: u64,
    pub delay: Option<Delay>,
}

/// Frames in about a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    pub sent: u64,
    pub received: u64,
}

/// Connections as their clients saw them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowsMeasured {
    pub attempted: u64,
    pub established: u64,
    pub completed: u64,
    /// By reason: `reset`, `connect_timeout`, ...
    pub failed: BTreeMap<String, u64>,
    /// What peers did otherwise than the program says, responses of HTTP other than 2xx and 3xx, and
    /// failures of TLS.
    pub errors: u64,
    /// Most that were open at one time.
    pub peak_active: u64,
    /// Connections that completed per second at full load, and application data of both sides,
    /// bits per second.
    pub completed_cps: f64,
    pub goodput_bps: f64,
    /// Application data, octets, that clients received.
    pub received_octets: u64,
    /// Application data of both sides that TCP sent, and what of it was sent again.
    pub tcp_sent_octets: u64,
    pub tcp_resent_octets: u64,
    pub setup: Option<Delay>,
    pub first_byte: Option<Delay>,
    pub transaction: Option<Delay>,
    pub duration: Option<Delay>,
}

impl FlowsMeasured {
    pub fn failures(&self) -> u64 {
        self.failed.values().sum::<u64>() + self.errors
    }

    /// Failed / attempted, 0 to 1.
    pub fn failed_ratio(&self) -> f64 {
        let part = self.failures() as f64 / self.attempted.max(1) as f64;
        part.min(1.0)
    }
}

/// What a port sent and received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortMeasured {
    pub name: String,
    pub sent: u64,
    pub received: u64,
    /// Received frames that are none of Squall's measured streams.
    #[serde(default)]
    pub foreign: u64,
}

/// A distribution of times, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delay {
    pub min: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Measured {
    pub fn kept(&self) -> bool {
        self.not_kept.is_empty()
    }

    pub fn lane(&self, name: &str) -> Option<&LaneMeasured> {
        self.lanes.iter().find(|lane| lane.name == name)
    }

    /// Frames of measured streams that a port received; `None`: not known.
    pub fn signed_at(&self, port: &str) -> Option<u64> {
        let port = self.ports.iter().find(|one| one.name == port)?;
        Some(port.received.saturating_sub(port.foreign))
    }

    pub fn sent(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.sent).sum()
    }

    pub fn lost(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.lost).sum()
    }

    /// Lost / sent (RFC 7680); 0 of nothing.
    pub fn loss_ratio(&self) -> f64 {
        let sent = self.sent();
        if sent == 0 { 0.0 } else { self.lost() as f64 / sent as f64 }
    }

    /// What came out, as a part of what was offered, at most 1: the lane that fares worst. A device
    /// that buffers more than it carries loses nothing yet and gives its frames out more slowly than
    /// they came.
    pub fn kept_up(&self) -> f64 {
        let part = |lane: &LaneMeasured| match lane.output_fps {
            Some(output) if lane.offered_fps > 0.0 => output / lane.offered_fps,
            _ => 1.0,
        };
        self.lanes.iter().map(part).fold(1.0, f64::min)
    }

    /// The delays of all lanes: extremes are exact, means weighted, percentiles those of the worst
    /// lane.
    pub fn delay(&self) -> Option<Delay> {
        pooled(self.lanes.iter().filter_map(|lane| Some((lane.received, lane.delay?))))
    }

    /// The widest bound of the delays of all lanes; `None`: sender and receiver have one clock.
    pub fn delay_bound_ns(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.delay_bound_ns).max()
    }

    pub fn ipdv(&self) -> Option<Delay> {
        pooled(self.lanes.iter().filter_map(|lane| Some((lane.received, lane.ipdv?))))
    }
}

impl Delay {
    /// Of two distributions the extremes, of percentiles the worse; the mean is this one's.
    pub fn worst(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            mean: self.mean,
            p50: self.p50.max(other.p50),
            p90: self.p90.max(other.p90),
            p99: self.p99.max(other.p99),
            p999: self.p999.max(other.p999),
            max: self.max.max(other.max),
        }
    }
}

fn pooled(parts: impl Iterator<Item = (u64, Delay)>) -> Option<Delay> {
    let (mut n, mut pooled) = (0, None::<Delay>);
    for (received, delay) in parts {
        let so_far = pooled.unwrap_or(delay);
        let weight = received as f64 / (n + received).max(1) as f64;
        let mean = so_far.mean + (delay.mean - so_far.mean) * weight;
        pooled = Some(Delay { mean, ..so_far.worst(delay) });
        n += received;
    }
    pooled
}
