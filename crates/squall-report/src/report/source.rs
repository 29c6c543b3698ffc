//! Requested and achieved traffic of each source: the section of a report that the verdict reads.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One source: the streams of a port, the captures that a port replays, the flows of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceRecord {
    /// Name of the port or of the template. If a port has several sources: `streams by PORT`, and
    /// for a replay `NAME by PORT`.
    pub name: String,
    pub kind: SourceKind,
    /// Ports that it sends on.
    pub ports: Vec<String>,
    /// Unit of the counts: `packets` or `flows`.
    pub unit: String,
    /// Number due until the run ended: `sent` plus all of `not_sent`.
    pub asked: u64,
    /// Frames that the port accepted; of flows, those that started.
    pub sent: u64,
    /// Number due and not sent, by reason.
    pub not_sent: BTreeMap<String, u64>,
    /// Share of the number due, 0 to 1.
    pub not_sent_ratio: f64,
    /// Requested mean rate, per second; `null` if the port, a capture or a closed loop determines
    /// it.
    pub asked_rate: Option<f64>,
    /// It sends as fast as the port allows.
    pub unpaced: bool,
    /// Number sent per second, over the run.
    pub rate: f64,
    /// Flows that completed; `null` for frames.
    #[serde(default)]
    pub completed: Option<u64>,
    /// Flows that failed, by reason.
    #[serde(default)]
    pub failed: BTreeMap<String, u64>,
    /// 99th percentile of actual minus due time of departure; `null` if nothing had a due time.
    pub late_p99_ns: Option<u64>,
    pub late_max_ns: Option<u64>,
    /// Window with the largest excess over the profile; `null` without a schedule.
    pub excess: Option<Excess>,
    /// Time by which the source was late at the end, and total delay by stalls, made
    /// up for or not.
    pub lag_s: f64,
    pub moved_s: f64,
    /// Time in which the sending thread was ready to run and had no CPU; of several threads, the
    /// longest.
    pub starved_s: f64,
    pub longest_stall_s: f64,
    /// Time in which the port accepted no frames although some were due, and time that the port
    /// spent accepting frames; the rest of the run is the sender's.
    pub blocked_s: f64,
    pub sending_s: f64,
    /// Time before the end in which nothing could be sent because captures were not read in time.
    #[serde(default)]
    pub unread_s: f64,
    /// Reason why a capture could not be read to its end.
    #[serde(default)]
    pub fault: Option<String>,
    /// Conversations of a replayed capture that has one direction of them only.
    #[serde(default)]
    pub one_sided: u64,
    /// As in the verdict, or `port-lost`.
    pub ended_by: String,
    /// Number of a replay in the plan.
    #[serde(skip)]
    pub replay: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    #[default]
    Streams,
    Replay,
    Flows,
    Attacks,
}

impl SourceKind {
    /// The kind in a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Replay => "captures",
            Self::Flows => "flows",
            Self::Attacks => "attacks",
        }
    }
}

/// The window with the largest excess over the profile, among all windows of `window_s` to twice
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Excess {
    /// Shortest window: 10 ms, or 10 gaps of a slower source.
    pub window_s: f64,
    /// Start of the window, since the start of the run, and its length.
    pub at_s: f64,
    pub over_s: f64,
    /// Number that left in the window, and how many of these exceed the number due in such a time.
    pub packets: u64,
    pub surplus_packets: u64,
    /// Time on the schedule of the frames that left in the window, minus its length; and the
    /// allowed value of that: 1 ms or two gaps, plus 1 % of the length.
    pub beyond_s: f64,
    pub allowed_s: f64,
    /// The largest burst: number that left within a millisecond beyond the number due in it.
    pub largest_burst_packets: u64,
}
