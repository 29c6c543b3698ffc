//! Attacks of a run and their outcomes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One `[[attack]]` of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttackReport {
    pub name: String,
    /// Number of rules in the files.
    pub rules: u64,
    /// Lines that are not a valid rule, by reason.
    pub problems: BTreeMap<String, u64>,
    /// The first of these lines.
    pub problems_first: Vec<String>,
    /// Rules that were selected.
    pub chosen: u64,
    /// Selected rules for which an attack was found and verified by the evaluator.
    pub solved: u64,
    /// Rules for which no attack was found, by reason; `silent` rules never raise alerts.
    pub unsolved: BTreeMap<String, u64>,
    /// Each unsolved rule.
    pub unsolved_rules: Vec<UnsolvedRule>,
    /// Attacks in the run, and near misses.
    pub attacks: u64,
    pub near_misses: u64,
    /// Attacks whose rule does not match the frames in the form in which they are sent (evasions,
    /// tunnels, addresses), according to the evaluator. No alert is expected for them.
    #[serde(default)]
    pub unseen: u64,
    /// Rules for which a near miss was requested and not found.
    pub without_twin: u64,
    /// Rules whose attacks were changed by message evasions and still match.
    pub varied: u64,
    /// Attacks that are not part of the run, by reason: `no_address` (the given addresses do not
    /// suffice), `not_written` (headers cannot hold the requested values), `near_miss_seen` (a near
    /// miss that matches in the form in which it is sent, according to the evaluator),
    /// `own_address` (frames of hosts that have the host's address outside their headers),
    /// `needs_server` (live without a port for the servers, and a rule matches their answers),
    /// `defect` (a bug in Squall).
    pub left_out: BTreeMap<String, u64>,
    /// Reason for the first attack that was not written.
    #[serde(skip)]
    pub left_out_first: Option<String>,
    /// Frames of all attacks, and their octets without FCS.
    pub frames: u64,
    pub octets: u64,
    /// Attacks of hosts that did not leave as a whole, by reason: `no_host` (no host had an address
    /// when the attack was due), `address_lost` (its host lost the address during the attack),
    /// `no_session` (its access concentrator had no session with the other end), `not_begun` (the
    /// run ended before it was due, or while it waited for its ends, which others used). Live ones
    /// also: `limit` (too many open flows), `full` (the flow table had no room), `unresolved` (no
    /// reply for the next hop), and without a port for the servers, the failure of the client, such
    /// as `refused`, or `stopped` if it was open at the end.
    #[serde(default)]
    pub unsent: BTreeMap<String, u64>,
    /// Planned time from the start of the run to the last frame of an attack.
    pub duration_s: f64,
    /// Attacks that reached the other port; only for runs with two ports that receive.
    #[serde(default)]
    pub passage: Option<PassageReport>,
}

/// A rule for which no attack was found, and the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnsolvedRule {
    pub gid: u32,
    pub sid: u32,
    pub msg: String,
    pub reason: String,
    pub text: String,
}

/// Attacks sent through a device between two of Squall's ports. The octets that arrived show
/// whether the device let them pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassageReport {
    /// Conversations between both ends, plus attacks sent as prepared frames.
    pub conversations: u64,
    /// Attacks sent as prepared frames.
    #[serde(default)]
    pub as_frames: u64,
    /// Conversations that completed at both ends, plus attacks in prepared frames whose whole
    /// payload arrived at the other port.
    pub passed: u64,
    /// Attacks that passed as frames with changed octets, but with the same length.
    #[serde(default)]
    pub altered: u64,
    /// All others: conversations by the failure at the client, otherwise at the server;
    /// `not_received` and `partly_received` if none or some of the octets arrived.
    pub blocked: BTreeMap<String, u64>,
    /// Near misses among the conversations, and those that passed.
    pub near_misses: u64,
    pub near_misses_passed: u64,
    /// Figures per rule.
    pub rules: Vec<RulePassage>,
}

/// Conversations of one rule's attacks through a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RulePassage {
    pub gid: u32,
    pub sid: u32,
    pub msg: String,
    pub attacks: u64,
    pub passed: u64,
    pub blocked: u64,
    pub near_misses: u64,
    pub near_misses_passed: u64,
}
