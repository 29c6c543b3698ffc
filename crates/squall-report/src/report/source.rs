//! Requested and achieved traffic of each source. The verdict reads this section of a report.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A source: the streams on a port, the captures that a port replays, or the flows of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceRecord {
    /// Name of the port or the template. If a port has several sources, `streams by PORT`, or `NAME
    /// by PORT` for a replay.
    pub name: String,
    pub kind: SourceKind,
    /// Ports on which it sends.
    pub ports: Vec<String>,
    /// Unit of the counts: `packets` or `flows`.
    pub unit: String,
    /// Number due until the run ended: `sent` plus all of `not_sent`.
    pub asked: u64,
    /// Frames that the port accepted, or flows that started.
    pub sent: u64,
    /// Number due and not sent, by reason.
    pub not_sent: BTreeMap<String, u64>,
    /// `not_sent` as a share of the number due, 0 to 1.
    pub not_sent_ratio: f64,
    /// Requested mean rate per second; `null` if it is determined by the port, a capture or a
    /// closed loop.
    pub asked_rate: Option<f64>,
    /// Whether it sends as fast as the port allows.
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
    /// Time by which the source was late at the end, and total delay due to stalls, including delay
    /// that was made up for.
    pub lag_s: f64,
    pub moved_s: f64,
    /// Time in which the sending thread was ready to run, but had no CPU; with several threads, the
    /// longest.
    pub starved_s: f64,
    pub longest_stall_s: f64,
    /// Time in which the port accepted no frames although some were due, and time that the port
    /// spent accepting frames. The sender used the rest of the run.
    pub blocked_s: f64,
    pub sending_s: f64,
    /// Time before the end in which nothing could be sent, because captures were not read fast
    /// enough.
    #[serde(default)]
    pub unread_s: f64,
    /// Reason why a capture could not be read to its end.
    #[serde(default)]
    pub fault: Option<String>,
    /// Conversations of which a replayed capture has only one direction.
    #[serde(default)]
    pub one_sided: u64,
    /// As in the verdict, or `port-lost`.
    pub ended_by: String,
    /// Number of the replay in the plan.
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
    /// The kind as a word in sentences.
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
    /// Minimum length of the window: 10 ms, or 10 gaps for a slower source.
    pub window_s: f64,
    /// Start of the window, since the start of the run, and its length.
    pub at_s: f64,
    pub over_s: f64,
    /// Number that left in the window, and how many of these exceed the number due in a time of
    /// that length.
    pub packets: u64,
    pub surplus_packets: u64,
    /// Time on the schedule of the frames that left in the window, minus the length of the window;
    /// and the limit for this: 1 ms or two gaps, plus 1 % of the length.
    pub beyond_s: f64,
    pub allowed_s: f64,
    /// The largest burst: number that left within a millisecond beyond the number due in it.
    pub largest_burst_packets: u64,
}
