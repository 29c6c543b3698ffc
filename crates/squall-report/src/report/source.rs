//! What was asked of each source of traffic, and what it did: the part of a report that the verdict
//! reads.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One source: the streams of a port, the captures that a port replays, the flows of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceRecord {
    /// The port's, or the template's; where a port has several sources, `streams by PORT`, and of a
    /// replay its own name, `NAME by PORT`.
    pub name: String,
    pub kind: SourceKind,
    /// The ports that it sends by.
    pub ports: Vec<String>,
    /// What its counts are of: `packets` or `flows`.
    pub unit: String,
    /// Due until the run ended: `sent` and all of `not_sent`.
    pub asked: u64,
    /// Taken by the port for good; of flows, begun.
    pub sent: u64,
    /// Due and not sent, by reason.
    pub not_sent: BTreeMap<String, u64>,
    /// Of those that were due, 0 to 1.
    pub not_sent_ratio: f64,
    /// Mean rate that was asked for, a second; `null` where the port, a capture or a closed loop
    /// decides.
    pub asked_rate: Option<f64>,
    /// It sends as fast as the port goes.
    pub unpaced: bool,
    /// Sent a second, over the run.
    pub rate: f64,
    /// Flows that ended as they should; `null` of frames.
    #[serde(default)]
    pub completed: Option<u64>,
    /// Flows that did not end as they should, by reason.
    #[serde(default)]
    pub failed: BTreeMap<String, u64>,
    /// Actual minus due instant of departure; `null` where nothing had an instant.
    pub late_p99_ns: Option<u64>,
    pub late_max_ns: Option<u64>,
    /// Where most left beyond what the profile asked for; `null` where there is no schedule.
    pub excess: Option<Excess>,
    /// By how much the schedule was behind in the end, and all that it was moved by stalls,
    /// regained or not.
    pub lag_s: f64,
    pub moved_s: f64,
    /// Time in which the sending thread wanted to run and did not; of several, the one that had
    /// least of its CPU.
    pub starved_s: f64,
    pub longest_stall_s: f64,
    /// The port took no frames though some were due, or was taking them: what is left of the run is
    /// the sender's.
    pub blocked_s: f64,
    pub sending_s: f64,
    /// For so long before the end captures had not been read in time, so that nothing could leave.
    #[serde(default)]
    pub unread_s: f64,
    /// Why a capture could not be read to its end.
    #[serde(default)]
    pub fault: Option<String>,
    /// Conversations of a capture that is played, of which it has one direction only.
    #[serde(default)]
    pub one_sided: u64,
    /// As of the verdict, or `port-lost`.
    pub ended_by: String,
    /// Of a replay, its number in the plan.
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
    /// In a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Replay => "captures",
            Self::Flows => "flows",
            Self::Attacks => "attacks",
        }
    }
}

/// The window in which most was offered beyond the profile's own law, among all windows of
/// `window_s` to twice that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Excess {
    /// 10 ms, or 10 gaps of a slower source.
    pub window_s: f64,
    /// When it begins, since the start, and how long it is.
    pub at_s: f64,
    pub over_s: f64,
    /// What left in it, and how much of that is beyond what was due in such a time.
    pub packets: u64,
    pub surplus_packets: u64,
    /// Schedule that left in it, less its own length; and how much of that is allowed: 1 ms or two
    /// gaps, and 1 % of it.
    pub beyond_s: f64,
    pub allowed_s: f64,
    /// The largest burst: what left within a millisecond beyond what was due in it.
    pub largest_burst_packets: u64,
}
