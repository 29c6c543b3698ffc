//! A trial and its result: the interface between a method and its runner.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use squall_report::report::{ArrivedRange, LossPeriods};

/// The load offered to the device under test, for a given time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Label in the list of trials: `throughput, 64 octets`.
    pub label: String,
    pub lanes: Vec<Lane>,
    /// Seconds from the first departure to the end of the last slot.
    pub duration_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Connections, in addition to or instead of streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowLoad>,
    /// Whether the results have counts per second.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seconds: bool,
}

impl Trial {
    /// Whether a result says something about the device: the generator kept to its schedule, or the
    /// device kept all flows of a table, because a late second exchange makes that harder.
    pub fn counts(&self, measured: &Measured) -> bool {
        let load = self.flows.as_ref().filter(|load| load.kept.is_some());
        let flows = load.and_then(|load| load.limit).zip(measured.flows.as_ref());
        measured.kept() || flows.is_some_and(|(limit, flows)| flows.completed >= limit)
    }
}

/// Connections from clients to servers through the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowLoad {
    /// New connections per second, over all templates.
    pub cps: f64,
    /// Total number of connections; `None`: limited only by the trial's duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// HTTP between clients and servers; `None`: the templates of the profile, in their shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Bulk transfers between clients and servers, instead of `cps`, `limit` and `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk: Option<Bulk>,
    /// Flows that the device must keep in its table, instead of HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// DNS queries instead of HTTP. The servers of the profile's first template are the device: no
    /// server is played.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// Linear rise from 0 at the start, and fall to 0 at the end, seconds of the trial's duration.
    #[serde(default)]
    pub ramp_up_s: f64,
    #[serde(default)]
    pub ramp_down_s: f64,
    /// TCP settings of both sides: `congestion_control`, `receive_buffer`, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp: BTreeMap<String, String>,
}

/// HTTP/1.1 requests between the clients and servers of the profile's first template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Body length of each response, or of each request with `upload`, octets.
    pub object_octets: u64,
    /// Whether clients send the bodies (POST).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upload: bool,
    /// Requests per connection.
    pub requests: u32,
    /// Wait between a response and the next request.
    #[serde(default)]
    pub think_s: f64,
    /// Whether connections use TLS.
    #[serde(default)]
    pub tls: bool,
}

/// Bulk TCP connections between the clients and servers of the profile's first template. Each sends
/// at the rate that TCP allows until the trial ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Number of connections on which the server sends.
    pub down: u32,
    /// Number of connections on which the client sends.
    pub up: u32,
    /// Start time of the connections, seconds since the start of the trial.
    pub start_s: f64,
}

/// Flows that exchange data at the start and again after a wait. The server starts the second
/// exchange: if the client did, a device that has dropped the flow from its table would take the
/// data for a new flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// UDP instead of TCP.
    pub udp: bool,
    /// Time from the first exchange to the second, seconds.
    pub wait_s: f64,
}

/// A query for an AAAA record over UDP in each flow (RFC 1035, RFC 3596), each for another name. It
/// has failed if no AAAA record is the first record of the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dns {
    /// The domain of the names: `dns64.test`.
    pub domain: String,
    /// Time for the answer.
    pub within_s: f64,
}

/// A command that runs while the trial sends, such as the reset of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Time since the start of the trial, seconds.
    pub at_s: f64,
    /// Shell command line.
    pub command: String,
}

/// A stream of the rig in one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// Name in the results, unique in the trial.
    pub name: String,
    /// The stream of the rig's profile to send; ignored with a `template`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stream: String,
    /// Frames that the method defines itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// Octets with FCS; `None`: the size of the stream.
    pub frame_size: Option<u32>,
    /// Frames per second.
    pub rate_fps: f64,
    /// Number of frames after which the lane ends; `None`: it ends with the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Start time, seconds since the start of the trial.
    #[serde(default)]
    pub start_s: f64,
    /// Duration, seconds; `None`: to the end of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
}

/// A stream that is not part of the profile, in the profile's syntax.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The port that sends it.
    pub port: String,
    /// `eth(src=02:00:00:00:00:01)/ipv4/udp`.
    pub packet: String,
    /// As in `[[stream.vary]]`.
    #[serde(default)]
    pub vary: Vec<Value>,
    /// Frames have no signature, like those of a host, so receivers do not measure them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

impl Lane {
    /// Whether receivers measure it: frames without a signature are not measured.
    pub fn is_measured(&self) -> bool {
        self.template.as_ref().is_none_or(|template| !template.plain)
    }

    /// Number of frames due in a trial of `duration_s`.
    pub fn due(&self, duration_s: f64) -> u64 {
        let active = self.active_s(duration_s);
        // The first frame is due at 0.
        let slots = (active * self.rate_fps - 1e-9).ceil().max(0.0) as u64;
        self.frames.map_or(slots, |frames| frames.min(slots))
    }

    pub fn active_s(&self, duration_s: f64) -> f64 {
        let rest = (duration_s - self.start_s).max(0.0);
        self.duration_s.map_or(rest, |active| active.min(rest))
    }
}

/// The result of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// In the order of the trial's lanes.
    pub lanes: Vec<LaneMeasured>,
    /// All frames of each port of the rig, including foreign ones.
    #[serde(default)]
    pub ports: Vec<PortMeasured>,
    #[serde(default)]
    pub flows: Option<FlowsMeasured>,
    /// Why the trial is not valid: the ways in which the generator missed its schedule; empty:
    /// valid.
    #[serde(default)]
    pub not_kept: Vec<String>,
    /// CPU time, seconds.
    #[serde(default)]
    pub cpu_s: f64,
}

/// The result of a lane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LaneMeasured {
    pub name: String,
    pub sent: u64,
    /// Received frames, without duplicates.
    pub received: u64,
    pub lost: u64,
    #[serde(default)]
    pub duplicates: u64,
    #[serde(default)]
    pub reordered: u64,
    /// Frames per second over the lane's duration.
    pub offered_fps: f64,
    /// Frames per second between the first and the last arrival; `None` with fewer than two
    /// arrivals.
    pub output_fps: Option<f64>,
    pub delay: Option<Delay>,
    /// Uncertainty of each delay if sender and receiver have different clocks; `None`: they share a
    /// clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_bound_ns: Option<u64>,
    /// Magnitude of the IPDV of consecutive frames (RFC 3393).
    pub ipdv: Option<Delay>,
    /// Range of numbers from the first to the last frame that arrived, and the losses within it;
    /// `None`: unknown.
    #[serde(default)]
    pub arrived: Option<ArrivedRange>,
    /// Counts per second, if the trial requests them and has a real clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<Second>,
    /// Results by port, if more than one port received the lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<ReceiverMeasured>,
}

impl LaneMeasured {
    /// The loss periods of the lane (RFC 3357 §4), including losses before the first and after the
    /// last frame that arrived. If it is unknown which frames were lost, this is a single period
    /// that starts at the second frame.
    pub fn losses(&self) -> Option<LossPeriods> {
        let unknown = ArrivedRange { first: 0, end: self.sent, losses: None };
        self.arrived.unwrap_or(unknown).losses_of(self.sent, self.lost)
    }
}

/// The result of a lane at one receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverMeasured {
    pub port: String,
    /// Received frames, including duplicates.
    pub received: u64,
    pub lost: u64,
    pub delay: Option<Delay>,
}

/// Frames sent and received in about one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    pub sent: u64,
    pub received: u64,
}

/// Connections as seen by their clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowsMeasured {
    pub attempted: u64,
    pub established: u64,
    pub completed: u64,
    /// Number of failed connections by reason: `reset`, `connect_timeout`, ...
    pub failed: BTreeMap<String, u64>,
    /// Deviations of peers from the flow program, HTTP responses other than 2xx and 3xx, and TLS
    /// failures.
    pub errors: u64,
    /// Highest number of simultaneously open connections.
    pub peak_active: u64,
    /// Connections completed per second at full load. `goodput_bps`: application data of both
    /// sides, bits per second.
    pub completed_cps: f64,
    pub goodput_bps: f64,
    /// Application data received by clients, octets.
    pub received_octets: u64,
    /// Application data received by servers, octets.
    #[serde(default)]
    pub uploaded_octets: u64,
    /// Goodput over time, if the trial requests counts per second and has a real clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goodput: Vec<Goodput>,
    /// Application data of both sides that TCP sent. `tcp_resent_octets`: the part of it that was
    /// retransmitted.
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

/// Goodput since the previous sample, bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Goodput {
    /// Seconds since the start of the trial.
    pub at_s: f64,
    /// Application data that clients received.
    pub down_bps: f64,
    /// Application data that servers received.
    pub up_bps: f64,
}

/// Frames sent and received by a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortMeasured {
    pub name: String,
    pub sent: u64,
    pub received: u64,
    /// Received frames that do not belong to a measured stream.
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

impl LaneMeasured {
    /// Lost / sent (RFC 7680); 0 without frames.
    pub fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

impl Measured {
    pub fn kept(&self) -> bool {
        self.not_kept.is_empty()
    }

    pub fn lane(&self, name: &str) -> Option<&LaneMeasured> {
        self.lanes.iter().find(|lane| lane.name == name)
    }

    /// Frames of measured streams received by `port`; `None`: unknown.
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

    /// Lost / sent (RFC 7680); 0 if no frames were sent.
    pub fn loss_ratio(&self) -> f64 {
        let sent = self.sent();
        if sent == 0 { 0.0 } else { self.lost() as f64 / sent as f64 }
    }

    /// Output rate as a fraction of the offered rate, at most 1, of the worst lane. A device that
    /// buffers its overload has no loss yet, but its output rate is below its input rate.
    pub fn output_ratio(&self) -> f64 {
        let part = |lane: &LaneMeasured| match lane.output_fps {
            Some(output) if lane.offered_fps > 0.0 => output / lane.offered_fps,
            _ => 1.0,
        };
        self.lanes.iter().map(part).fold(1.0, f64::min)
    }

    /// Pooled delay of all lanes: exact minimum and maximum, weighted mean, percentiles of the
    /// worst lane.
    pub fn delay(&self) -> Option<Delay> {
        pooled(self.lanes.iter().filter_map(|lane| Some((lane.received, lane.delay?))))
    }

    /// The highest delay uncertainty of all lanes; `None`: sender and receiver share a clock.
    pub fn delay_bound_ns(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.delay_bound_ns).max()
    }

    pub fn ipdv(&self) -> Option<Delay> {
        pooled(self.lanes.iter().filter_map(|lane| Some((lane.received, lane.ipdv?))))
    }
}

impl Delay {
    /// Minimum and maximum over both distributions, and the worse percentiles; the mean is that of
    /// `self`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_trial_of_a_table_counts_if_the_device_kept_all_flows() {
        let kept = Kept { udp: true, wait_s: 1.0 };
        let load = FlowLoad { limit: Some(10), kept: Some(kept), ..FlowLoad::default() };
        let table = Trial { flows: Some(load.clone()), ..Trial::default() };
        let late = |completed| Measured {
            flows: Some(FlowsMeasured { completed, ..FlowsMeasured::default() }),
            not_kept: vec!["late".into()],
            ..Measured::default()
        };
        assert!(table.counts(&late(10)));
        assert!(!table.counts(&late(9)), "the generator may have lost one");
        let load = FlowLoad { kept: None, ..load };
        assert!(!Trial { flows: Some(load), ..table }.counts(&late(10)));
    }
}
