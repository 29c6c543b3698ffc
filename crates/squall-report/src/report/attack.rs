//! What was attacked with, and what became of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One `[[attack]]` of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttackReport {
    pub name: String,
    /// Rules of the files.
    pub rules: u64,
    /// Lines that gave no rule, by reason.
    pub problems: BTreeMap<String, u64>,
    /// The first of them.
    pub problems_first: Vec<String>,
    /// Rules that were asked for.
    pub chosen: u64,
    /// Of these, rules for which an attack was found and verified by the evaluator.
    pub solved: u64,
    /// And rules for which none was, by reason; `silent` are those that never alert.
    pub unsolved: BTreeMap<String, u64>,
    /// Each of them.
    pub unsolved_rules: Vec<UnsolvedRule>,
    /// Attacks of the run, and twins that are one octet off.
    pub attacks: u64,
    pub near_misses: u64,
    /// Of these attacks, those whose rule the evaluator does not see in the frames as they are sent
    /// (evasions, tunnels, addresses): no alert is owed for them.
    #[serde(default)]
    pub unseen: u64,
    /// Rules without a twin that does not match, of those for which one was wanted.
    pub without_twin: u64,
    /// Rules whose attacks are said otherwise, as evasions of messages ask for, and still match.
    pub varied: u64,
    /// Attacks that are not part of the run, by reason: `no_address` (the addresses given leave no
    /// room), `not_written` (headers cannot hold what is asked for), `near_miss_seen` (a twin
    /// that the evaluator does match as it is sent), `defect` (Squall itself has failed at it).
    pub left_out: BTreeMap<String, u64>,
    /// Why the first that was not written was not.
    #[serde(skip)]
    pub left_out_first: Option<String>,
    /// All frames of attacks, and their octets without FCS.
    pub frames: u64,
    pub octets: u64,
    /// From the beginning of the run to the last frame of an attack, as planned.
    pub duration_s: f64,
    /// What reached the other end; of a run with two ports that receive.
    #[serde(default)]
    pub passage: Option<PassageReport>,
}

/// A rule for which no attack was found, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnsolvedRule {
    pub gid: u32,
    pub sid: u32,
    pub msg: String,
    pub reason: String,
    pub text: String,
}

/// Attacks between two ports of ours, with a device between: whether it let them pass. Octets that
/// arrived decide.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassageReport {
    /// Conversations that both ends spoke, and attacks that left as prepared frames.
    pub conversations: u64,
    /// Of these, what left as prepared frames.
    #[serde(default)]
    pub as_frames: u64,
    /// Conversations that were spoken to their ends, at both; of prepared frames, those of which
    /// all octets of payload arrived at the other port.
    pub passed: u64,
    /// Of those that passed as frames, with as many octets and others.
    #[serde(default)]
    pub altered: u64,
    /// All others: conversations by what the client, or else the server, says of them;
    /// `not_received`, `partly_received`: none or some of the octets arrived.
    pub blocked: BTreeMap<String, u64>,
    /// Near misses among them, and those of them that passed.
    pub near_misses: u64,
    pub near_misses_passed: u64,
    /// By rule.
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
