//! The result of a run, for the table, the JSON, the HTML and Python. Units are part of the names.

pub mod attack;
pub mod fail_if;
pub mod flows;
pub mod hosts;
pub mod json;
pub mod reasons;
pub mod routers;
pub mod routes;
pub mod source;

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_stats::{Histogram, SequenceTracker};

use reasons::Reasons;

/// Version of this structure.
pub const SCHEMA: &str = "squall-report/1";

/// A finished run (or a running one, so far).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// `squall-report/1`.
    pub schema: String,
    /// The command line, or `python`.
    pub command: String,
    /// Version of the program that made the run.
    pub squall_version: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// Time from the first due departure to the last frame that left, on the engine's clock.
    pub duration_s: f64,
    pub seed: u64,
    /// The part, if the run was divided (`--part`): `2/3`; `null`: the whole run.
    #[serde(default)]
    pub part: Option<String>,
    /// Runs that were merged into this report; empty for a single run.
    #[serde(default)]
    pub parts: Vec<PartReport>,
    /// Name of the node, if several machines made the run.
    #[serde(default)]
    pub node: Option<String>,
    /// The cluster's clock relative to this node's; `null`: the node's own clock is used.
    #[serde(default)]
    pub clock: Option<NodeClock>,
    /// The agreed start; `null`: the run started as soon as it was ready.
    #[serde(default)]
    pub start: Option<StartReport>,
    /// Filter for received frames, in tcpdump's syntax; `null`: all frames.
    #[serde(default)]
    pub filter: Option<String>,
    pub host: Host,
    /// Whether the figures can be trusted, and the reasons if not.
    pub verdict: Verdict,
    /// The requested end of the run.
    #[serde(default)]
    pub asked: Asked,
    /// Whether the run was stopped before the requested end.
    #[serde(default)]
    pub cut_short: bool,
    /// Requested and achieved traffic of each source.
    #[serde(default)]
    pub sources: Vec<source::SourceRecord>,
    pub ports: Vec<PortReport>,
    /// Streams that the run sent, and streams from other senders that it received.
    pub streams: Vec<StreamReport>,
    /// Packets that were written to capture files or not; present only for a capture.
    #[serde(default)]
    pub capture: Option<CaptureReport>,
    /// Packets of captures that were read and sent, per replay, and attacks that were sent as
    /// frames.
    #[serde(default)]
    pub replays: Vec<ReplayReport>,
    /// Flows of clients and servers; present only for a profile with templates.
    #[serde(default)]
    pub flows: Option<flows::FlowsReport>,
    /// One entry for each `[[host]]` of the profile on a port of this node.
    #[serde(default)]
    pub hosts: Vec<hosts::HostsReport>,
    /// Routing daemons of the run.
    #[serde(default)]
    pub routers: Vec<routers::RouterReport>,
    /// One entry for each `[[attack]]` of the profile.
    #[serde(default)]
    pub attacks: Vec<attack::AttackReport>,
    /// Threads that sent and received.
    pub workers: Vec<WorkerReport>,
    /// Received flows; present only for commands that count them (`squall recv`).
    #[serde(default)]
    pub received_flows: Option<ReceivedFlowsReport>,
    /// Samples taken during the run.
    pub series: Vec<Sample>,
    pub cpu: Cpu,
    #[serde(default)]
    pub contention: Contention,
    pub memory: Memory,
    /// Notes for the user: a fallback that was taken, a rate that was limited.
    pub notes: Vec<String>,
}

/// Mapping from one node's clock to the cluster's: cluster time is local time plus `shift_ns`, plus
/// `drift_ppb` of the time since `at_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeClock {
    /// Cluster time minus local time at `at_ns`.
    pub shift_ns: i64,
    /// Difference between the rates of the clocks, in parts per 10^9.
    #[serde(default)]
    pub drift_ppb: f64,
    /// Local time, as returned by `GET /clock`.
    #[serde(default)]
    pub at_ns: u64,
    /// Largest difference between this mapping and the cluster's clock during the run.
    pub bound_ns: u64,
}

/// The agreed start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartReport {
    /// Start in cluster time.
    pub at_ns: u64,
    /// Time from the moment at which the node's first stream was due to its first frame; `null`: no
    /// stream was sent on a port of the node.
    pub error_ns: Option<i64>,
}

/// One of the runs that were merged into a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartReport {
    /// Name of the part: its file, or its node.
    pub name: String,
    /// `2/3`; `null`: the run was not divided.
    pub part: Option<String>,
    pub host: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub duration_s: f64,
    pub status: VerdictStatus,
    /// Frames sent on all ports.
    pub tx_packets: u64,
    pub rx_packets: u64,
}

impl PartReport {
    /// A sentence for pages.
    pub fn sentence(&self) -> String {
        let part = self.part.as_ref().map(|part| format!(" (part {part})")).unwrap_or_default();
        let (name, host, sent, received) =
            (&self.name, &self.host, self.tx_packets, self.rx_packets);
        let word = self.status.word();
        format!("{name}{part} on {host}: {sent} packets sent, {received} received, {word}")
    }
}

/// A replay of captures. Octets are those of the captures, without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayReport {
    /// Name of the `[[replay]]`; `attacks` for attacks that were sent as frames.
    pub name: String,
    pub files: Vec<String>,
    /// Completed loops.
    pub loops: u64,
    /// Frames sent on all ports, and their octets without FCS.
    pub packets: u64,
    pub octets: u64,
    /// Packets read from the captures. Each loop counts them again unless the captures were
    /// preloaded.
    pub read: ReplayRead,
    pub ports: Vec<ReplayPort>,
    /// Flows that were sent, by tcpreplay's definitions; `null` if they were not counted.
    pub flows: Option<ReplayFlows>,
    /// Packets that were edited; `null` without edits.
    pub edited: Option<ReplayEdits>,
    /// Time in which the sender waited for data from the captures.
    pub starved_s: f64,
    /// Why captures could not be read to their end. Packets before the error were sent.
    pub fault: Option<String>,
}

/// Packets read from captures, by outcome; octets as captured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayRead {
    pub packets: u64,
    pub octets: u64,
    /// Excluded by the filter or by their packet numbers.
    pub unwanted: u64,
    /// Excluded because their side (client or server) could not be determined.
    pub sideless: u64,
    /// Dropped by an edit.
    pub edited_out: u64,
    /// Excluded because they are longer than their port can send.
    pub too_long: u64,
    /// Excluded because they are not Ethernet frames and cannot be converted to Ethernet.
    pub not_ethernet: u64,
    /// Packets with fewer octets in the capture than on the wire.
    pub cut: u64,
    /// Packets with a timestamp earlier than that of a previous packet; they are sent right after
    /// it.
    pub backward: u64,
}

/// A flow is one direction: addresses, protocol and ports. If each loop has its own addresses, it
/// has its own flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayFlows {
    /// Flows that started: unique flows, and flows that started again after they had expired.
    pub flows: u64,
    /// Flows with different addresses, protocols or ports.
    pub unique: u64,
    /// Flows that were idle for longer than `--flow-expiry` before their next packet left.
    pub expired: u64,
    /// Flows per second over the replay's duration.
    pub flows_per_second: f64,
    pub flow_packets: u64,
    /// Packets without an IP layer, fragments without ports, packets with truncated or
    /// contradictory headers.
    pub non_flow_packets: u64,
    /// Non-flow packets with truncated or contradictory headers.
    pub invalid_packets: u64,
    /// Packets of flows beyond the limit on counted flows.
    pub overflow_packets: u64,
    /// Shares by IP version and protocol, busiest first.
    pub protocols: Vec<ReplayShare>,
    /// Hosts that sent the most octets, by their addresses in the captures.
    pub talkers: Vec<ReplayShare>,
    /// Flows with the most octets, by their addresses in the captures.
    pub top_flows: Vec<ReplayShare>,
}

/// Sent packets of one protocol, host or flow. Octets are those of the captures, without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayShare {
    pub name: String,
    pub packets: u64,
    pub octets: u64,
}

/// Packets that were edited when they were read, which is ahead of sending. A loop that edits
/// packets again counts them again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayEdits {
    pub changed: u64,
    pub dropped: u64,
    /// Packets that the edits added (fragments).
    pub added: u64,
}

/// Frames of one port of a replay, by tcpreplay's definitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayPort {
    pub port: String,
    /// Frames passed to the port: `successful` plus `failed`.
    pub attempted: u64,
    /// Frames that the port accepted.
    pub successful: u64,
    /// Frames that the port refused, or that were queued when the port was lost.
    pub failed: u64,
    /// Frames that were truncated because they are longer than the port can send.
    pub truncated: u64,
    /// Frames that were retried because the port was full.
    pub retried: u64,
}

/// The machine on which the run took place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    pub name: String,
    pub os: String,
    pub kernel: String,
    pub cpu_model: String,
    pub cpus: u32,
}

impl Host {
    /// Facts for pages, by name.
    pub fn facts(&self) -> [(&'static str, String); 3] {
        [
            ("Host", self.name.clone()),
            ("System", [self.os.as_str(), self.kernel.as_str()].join(" ").trim().to_owned()),
            ("Processor", format!("{} CPUs {}", self.cpus, self.cpu_model)),
        ]
    }
}

/// The requested end of a run; `null`: none was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// Seconds.
    pub duration_s: Option<f64>,
    /// Frames on all ports together; octets with FCS.
    pub packets: Option<u64>,
    pub octets: Option<u64>,
}

/// The generator's audit of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    #[serde(default)]
    pub status: VerdictStatus,
    /// Whether `status` is `valid`.
    pub valid: bool,
    /// The cause of the run's end.
    #[serde(default)]
    pub ended_by: EndedBy,
    /// Reasons why the run is not valid.
    pub reasons: Vec<Reason>,
    /// Criteria of `abort_if` that hold, with figures: the criterion that ended the run, or
    /// each one that holds at its end.
    #[serde(default)]
    pub failed: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictStatus {
    /// The generator sent the requested traffic within the stated bounds, and all counters agree.
    #[default]
    Valid,
    /// The run is not valid; see `reasons`.
    NotValid,
    /// Valid until it was stopped before the requested end.
    Interrupted,
}

impl VerdictStatus {
    pub fn word(self) -> &'static str {
        match self {
            Self::Valid => "VALID",
            Self::NotValid => "NOT VALID",
            Self::Interrupted => "INTERRUPTED",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// The run has not ended.
    #[default]
    Running,
    /// All work was done.
    Done,
    /// The requested duration elapsed.
    Duration,
    /// The requested number of packets was reached.
    Packets,
    /// The requested number of octets was reached.
    Octets,
    /// Stopped through the library or the daemon.
    Stopped,
    /// The run was stopped by SIGINT.
    Sigint,
    /// The run was stopped by SIGTERM.
    Sigterm,
    /// The run was stopped by SIGHUP.
    Sighup,
    /// A criterion of `abort_if` held; see `failed`.
    Criterion,
    /// The process was killed; the report has the data written until then.
    Killed,
}

/// Why a run is not valid: `generator-bound: port A: ...`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    pub code: ReasonCode,
    /// The reason, with figures.
    pub text: String,
    /// A remedy to try; empty if none is known.
    #[serde(default)]
    pub hint: String,
}

/// The part that caused it, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonCode {
    /// Frames left late or not at all while the port was free: the sender was the limit.
    GeneratorBound,
    /// The sender was ready to run, but had no CPU.
    Starved,
    /// More frames left in a window than were due, beyond the allowed excess.
    Burst,
    /// The requested work was not done.
    NotDone,
    /// A capture with only one direction was played as if it had both.
    OneSided,
    /// The link was down while frames were due.
    LinkDown,
    /// Frames left late or not at all while the port was full or accepting frames.
    PortBound,
    /// The port refused frames, each with a reason.
    PortRefused,
    /// The port or its interface disappeared.
    PortLost,
    /// Frames arrived and were dropped before they were read.
    ReceiverBound,
    /// The counters of the interface and of this process differ.
    CountersDiffer,
    /// Frames arrived before they were sent.
    ClocksDiffer,
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GeneratorBound => "generator-bound",
            Self::Starved => "starved",
            Self::Burst => "burst",
            Self::NotDone => "not-done",
            Self::OneSided => "one-sided",
            Self::LinkDown => "link-down",
            Self::PortBound => "port-bound",
            Self::PortRefused => "port-refused",
            Self::PortLost => "port-lost",
            Self::ReceiverBound => "receiver-bound",
            Self::CountersDiffer => "counters-differ",
            Self::ClocksDiffer => "clocks-differ",
        })
    }
}

impl Reason {
    /// The code and the first clause, without details of the machine and without the remedy.
    pub fn brief(&self) -> String {
        let first = self.text.split("; ").next().unwrap_or_default();
        let first = first.split(" (kernel: ").next().unwrap_or_default();
        format!("{}: {first}", self.code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; try: {}", self.hint) }
    }
}

impl Default for Verdict {
    fn default() -> Self {
        Self {
            status: VerdictStatus::Valid,
            valid: true,
            ended_by: EndedBy::Running,
            reasons: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Duration => "duration",
            Self::Packets => "packets",
            Self::Octets => "octets",
            Self::Stopped => "stopped",
            Self::Sigint => "SIGINT",
            Self::Sigterm => "SIGTERM",
            Self::Sighup => "SIGHUP",
            Self::Criterion => "criterion",
            Self::Killed => "killed",
        })
    }
}

impl EndedBy {
    /// The number of the signal, if a signal ended the run.
    pub fn signal(self) -> Option<u8> {
        match self {
            Self::Sighup => Some(1),
            Self::Sigint => Some(2),
            Self::Sigterm => Some(15),
            _ => None,
        }
    }
}

impl Verdict {
    /// Adds a reason why the run is not valid, with a remedy.
    pub(crate) fn add_reason(&mut self, code: ReasonCode, text: String, hint: &str) {
        self.reasons.push(Reason { code, text, hint: hint.to_owned() });
        (self.status, self.valid) = (VerdictStatus::NotValid, false);
    }

    /// Marks the run as stopped before its end. Keeps a worse status.
    pub(crate) fn interrupt(&mut self) {
        if self.valid {
            (self.status, self.valid) = (VerdictStatus::Interrupted, false);
        }
    }

    pub fn has(&self, code: ReasonCode) -> bool {
        self.reasons.iter().any(|reason| reason.code == code)
    }
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortReport {
    pub name: String,
    pub address: String,
    /// Source of receive timestamps: `none`, `process`, `kernel`, `hardware`, `virtual`.
    pub timestamps: String,
    pub tx: TxReport,
    pub rx: RxReport,
    /// Counters of the interface over the run; `null` if there is no interface.
    pub interface: Option<InterfaceReport>,
    /// Times when the link went down or came up; at most the first 10,000 changes.
    #[serde(default)]
    pub link_events: Vec<LinkEvent>,
    /// Changes of the interface's MTU; at most the first 10,000.
    #[serde(default)]
    pub mtu_changes: Vec<MtuChange>,
}

/// A port's link went down, or came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkEvent {
    /// When the change was seen: seconds since the first departure was due; 0 before that.
    pub t_s: f64,
    pub up: bool,
}

/// The MTU of a port's interface was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MtuChange {
    /// When the change was seen: seconds since the first departure was due; 0 before that.
    pub t_s: f64,
    /// The MTU before the change, in octets.
    pub before: u32,
    /// The MTU after the change, in octets.
    pub after: u32,
}

impl PortReport {
    /// Whether the port belongs to another node, so this report has no figures for it.
    pub fn is_remote(&self) -> bool {
        self.address.starts_with("elsewhere:")
    }

    /// Frames that were due and did not leave, plus frames that arrived and were lost.
    pub fn drops(&self) -> u64 {
        self.tx.errors
            + self.tx.not_sent.values().sum::<u64>()
            + self.rx.drops.values().sum::<u64>()
    }
}

/// Frames that the port accepted. Octets are L2, FCS included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TxReport {
    pub packets: u64,
    pub octets: u64,
    /// Means over the run's duration.
    pub pps: f64,
    pub bps_l1: f64,
    pub bps_l2: f64,
    /// GSO frames passed to the port, and the frames into which they were cut, which are included
    /// in `packets`.
    #[serde(default)]
    pub gso_frames: u64,
    #[serde(default)]
    pub segments: u64,
    /// Frames that the port refused.
    pub errors: u64,
    /// Frames that were due and did not leave, by reason.
    pub not_sent: BTreeMap<String, u64>,
    /// Time during which the port accepted no frames although some were due.
    pub blocked_s: f64,
    /// Time that the port spent accepting frames (copies and system calls); with several workers,
    /// that of the busiest.
    pub sending_s: f64,
    /// Actual minus due time of departure, over all streams.
    pub departure_error_ns: Option<Distribution>,
    /// Hash of the octets of all frames, independent of their order, in hexadecimal; only on
    /// request.
    pub fingerprint: Option<String>,
    /// Pacing of the port over all its sources, for the verdict. `null` if there is no schedule.
    #[serde(default)]
    pub pacing: Option<PortPacing>,
}

/// Departures of a port compared with the load that was due, in the window with the largest surplus
/// in relation to the allowed one, among windows of 0.27 ms to 0.55 s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortPacing {
    /// Unit of the counts: `packets` or `octets` (L2, FCS included), whichever is nearer to its
    /// limit.
    pub unit: String,
    /// Start of the window, since the start of the run, and its length.
    pub at_s: f64,
    pub over_s: f64,
    /// Number that left in the window, and number due in a time of that length.
    pub left: u64,
    pub due: u64,
    /// Allowed surplus: two frames or 1 ms of the port's load, plus 1 % of the number due.
    pub allowed: u64,
    /// Total delay of the port's clock due to stalls, including delay that was made up for, and the
    /// delay that was left at the last departure.
    pub moved_s: f64,
    pub lag_s: f64,
    /// Time from which the delay could not be made up for before the end, so frames left at up to
    /// twice the rate; `null`: never.
    pub catching_up_since_s: Option<f64>,
    /// Frames received by flows on a port without receive timestamps, where the due times of
    /// answers are known only roughly.
    pub uncertain_packets: u64,
}

impl PortPacing {
    /// Number of frames or octets that left beyond the number due.
    pub fn surplus(&self) -> u64 {
        self.left.saturating_sub(self.due)
    }
}

/// Frames of another run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForeignRun {
    /// The key in its signatures, as 4 hexadecimal digits.
    pub key: String,
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    /// Whether it has the same key as this run, and so the same seed. Its frames were sent before
    /// this run began, have a time in the future, or belong to a stream that this run does not
    /// have.
    pub same_key: bool,
}

/// Frames that reached the process. Octets are L2, FCS included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RxReport {
    pub packets: u64,
    pub octets: u64,
    /// Mean over the run's duration; for flows and sources, from their first to their last frame.
    pub pps: f64,
    pub bps_l1: f64,
    pub bps_l2: f64,
    /// GSO frames that arrived, because the kernel or the NIC had joined frames or had not cut them
    /// yet, and the frames in them, which are included in `packets`.
    #[serde(default)]
    pub gso_frames: u64,
    #[serde(default)]
    pub segments: u64,
    /// Frames without Squall's signature: from other senders, or from streams without `latency` and
    /// `trex_group`.
    pub unsigned_packets: u64,
    /// Frames with the signature of another run, which belong to no stream: an earlier run that is
    /// replayed or looped back, or another Squall on the same network.
    #[serde(default)]
    pub foreign_packets: u64,
    /// The same frames, by run.
    #[serde(default)]
    pub foreign: Vec<ForeignRun>,
    /// Frames lost between the interface and the process, by reason.
    pub drops: BTreeMap<String, u64>,
    /// As in [`TxReport`].
    pub fingerprint: Option<String>,
    /// Gaps between consecutive frames; `null` if there are fewer than two frames.
    pub arrival_gap_ns: Option<Distribution>,
    /// The same gaps, in bins of equal width; only on request.
    pub arrival_gap_bins: Option<EqualBins>,
    /// Resolution of the arrival timestamps, as far as they reveal it; only if flows are counted.
    #[serde(default)]
    pub timestamp_resolution_ns: Option<u64>,
    /// Rate of the busiest interval ([`ReceivedFlowsReport::interval_ns`]); only if flows are
    /// counted and one queue receives.
    #[serde(default)]
    pub peak_pps: Option<f64>,
    #[serde(default)]
    pub peak_bps_l2: Option<f64>,
    #[serde(default)]
    pub bursts: Option<Bursts>,
}

/// A capture: every packet that the filter accepted is `received`, and is either written, lost
/// (`dropped_by_kernel`, `dropped`) or `unwanted`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureReport {
    /// `pcapng`; `pcap, nanoseconds`; `pcap, microseconds`.
    pub format: String,
    /// Maximum number of octets kept per packet.
    pub snaplen: u32,
    /// Frames that arrived at the interfaces, including those that the filter rejects, as counted
    /// by the interfaces; `null` if no port has an interface.
    pub arrived: Option<u64>,
    /// Frames that the filter accepted, including lost ones, as counted by the ports. A GSO frame
    /// counts as one. `null` if a port does not count them.
    pub accepted: Option<u64>,
    /// Packets that the filter accepted on all interfaces, including lost ones. Each frame cut out
    /// of a GSO frame counts.
    pub received: u64,
    /// Frames that the interfaces counted as lost, by counter. Not included in `lost`, because
    /// other programs may have lost them, and frames in `dropped_by_kernel` may be counted here,
    /// too.
    pub dropped_by_interface: BTreeMap<String, u64>,
    /// Lost between the interface and the process, by reason.
    pub dropped_by_kernel: BTreeMap<String, u64>,
    /// Lost in the process, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets outside the requested part (trigger, count), by reason; these are not lost.
    pub unwanted: BTreeMap<String, u64>,
    /// All lost packets.
    pub lost: u64,
    /// Packet loss ratio: lost / (received - unwanted), 0 to 1.
    pub loss_ratio: f64,
    /// Written packets that were truncated because the buffer was filling up, not because of the
    /// snap length.
    pub truncated: u64,
    /// Packets written to files, or printed if there are none.
    pub written_packets: u64,
    /// Octets of the written packets, as captured, without FCS.
    pub written_octets: u64,
    /// Octets of all files.
    pub file_octets: u64,
    /// The newest files, at most 1000.
    pub files: Vec<CaptureFile>,
    /// Number of all files.
    pub files_written: u64,
    /// Files that the ring has removed. Their packets count as written.
    pub removed_files: u64,
    pub removed_packets: u64,
    pub removed_octets: u64,
    /// GSO frames that arrived, and the frames in them.
    pub gso_frames: u64,
    pub segments: u64,
    /// Number of packet sequences that follow a later packet of another queue in a file.
    pub out_of_order: u64,
    /// Size of the buffer memory between wire and file, and the maximum that waited in it to be
    /// written.
    pub buffer_octets: u64,
    pub buffer_peak_octets: u64,
    /// Time of the trigger; RFC 3339, UTC.
    pub triggered: Option<String>,
    /// The cause if the capture ended before it was stopped: `packets`, `octets`, `files`,
    /// `after the trigger`, `reader gone`, `write error`.
    pub ended_by: Option<String>,
    /// The error that prevented writing.
    pub error: Option<String>,
}

/// A file of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureFile {
    pub name: String,
    pub packets: u64,
    /// Its size.
    pub octets: u64,
    /// Times of the first and the last packet; RFC 3339, UTC; `null` if there are no packets.
    pub first: Option<String>,
    pub last: Option<String>,
}

/// The interface's own counters, without FCS, as differences over the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceReport {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub tx_dropped: u64,
    pub tx_errors: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    pub rx_dropped: u64,
    pub rx_errors: u64,
    /// Frames that the device could not receive because its buffers were full; some drivers count
    /// these in `rx_dropped` or `rx_errors`, too.
    pub rx_missed: u64,
    /// Overruns of the device's queue; some drivers count these twice, also as `rx_missed`.
    pub rx_fifo: u64,
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamReport {
    pub name: String,
    /// The port that sends it.
    pub port: String,
    pub group: Option<String>,
    pub tx_packets: u64,
    pub tx_octets: u64,
    /// Mean rate over the time in which the stream was active.
    pub tx_pps: f64,
    /// The requested rate in frames per second; `null` for `max`.
    pub asked_pps: Option<f64>,
    /// Frames that were due and did not leave, by reason.
    #[schemars(with = "BTreeMap<String, u64>")]
    pub not_sent: Reasons,
    /// Actual minus due time of departure; no frame leaves early.
    pub departure_error_ns: Option<Distribution>,
    // In a box, because it is five times as large as the rest, and a hundred thousand streams have
    // none.
    /// Figures measured by the receivers; only for streams with `latency` or `trex_group`.
    pub rx: Option<Box<StreamRx>>,
}

/// How receivers identify the frames of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// By a signature with a sequence number and the departure time.
    #[default]
    Signature,
    /// By a mark that is the same in all frames. `lost` is the number sent minus the number
    /// received, at the end of the run (0 until then). `duplicates` is the number received beyond
    /// the number sent. Order and delay are not measured.
    Mark,
}

/// Figures of a stream, measured by its receivers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamRx {
    #[serde(default)]
    pub known_by: KnownBy,
    /// Ports that received it.
    pub ports: Vec<String>,
    /// Received packets, duplicates included.
    pub packets: u64,
    pub octets: u64,
    /// Frames that were sent and never received; duplicates do not count as received (RFC 7680). If
    /// several ports receive the same frames, the port with the most counts; if the path changes
    /// from one port to another, the frames of both count.
    pub lost: u64,
    /// lost / sent, 0 to 1.
    pub loss_ratio: f64,
    /// RFC 5560.
    pub duplicates: u64,
    /// Type-P-Reordered packets (RFC 4737 §3): those with a sequence number below the next expected
    /// one.
    pub reordered: u64,
    /// Largest reordering extent (RFC 4737 §4.2.1), in packets.
    pub max_reordering_extent: u64,
    /// One-way delay (RFC 7679). Both ends use the same clock.
    pub latency_ns: Option<Distribution>,
    /// Uncertainty (plus or minus) of each delay if sender and receiver have different clocks;
    /// `null` if they have the same. In the report of a single node, only the uncertainty of its
    /// own clock.
    #[serde(default)]
    pub latency_bound_ns: Option<u64>,
    /// Packets that arrived before they were sent, by the cluster's clock; their delay counts as 0.
    #[serde(default)]
    pub early_packets: u64,
    /// The largest such negative delay.
    #[serde(default)]
    pub earliest_ns: u64,
    /// Magnitude of the IPDV between consecutive sequence numbers (RFC 3393).
    pub ipdv_ns: Option<Distribution>,
    /// Gaps between consecutive frames of the stream.
    pub arrival_gap_ns: Option<Distribution>,
    /// Smoothed interarrival jitter at the end (RFC 3550 §6.4.1).
    #[serde(default)]
    pub jitter_ns: Option<f64>,
    /// reordered / received, duplicates left out (RFC 4737 §3.4).
    #[serde(default)]
    pub reordering_ratio: f64,
    /// Number of times that the sender restarted its sequence; only for streams from other senders.
    #[serde(default)]
    pub restarts: u64,
    /// Patterns of lost and late frames; `null` if there were none.
    #[serde(default)]
    pub patterns: Option<Patterns>,
    /// The range of numbers that arrived, and the losses within; `null` if the numbers of the
    /// sender are not known. At the port that received most of the stream.
    #[serde(default)]
    pub arrived: Option<ArrivedRange>,
    /// Figures for each port, if more than one received the stream (multicast, flooding).
    #[serde(default)]
    pub receivers: Vec<ReceiverRx>,
    /// Figures of the routes to which the stream goes, after the end of the run; `null`: it goes to
    /// none.
    #[serde(default)]
    pub routes: Option<Box<routes::RoutesReport>>,
}

impl StreamRx {
    /// Whether the frames have signatures, so order, duplicates and delay are known.
    pub fn is_signed(&self) -> bool {
        self.known_by == KnownBy::Signature
    }
}

/// The range of numbers of a stream that a port received. The frames of a stream are numbered from
/// 0 in the order of their departure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrivedRange {
    /// The number of the first frame that arrived, and the number after the last one; both 0 if
    /// none did.
    pub first: u64,
    pub end: u64,
    /// Loss periods (RFC 3357 §4) between these two; `null`: not known, because several queues or
    /// nodes each received a part of the stream.
    pub losses: Option<LossPeriods>,
}

/// Lost frames by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossPeriods {
    /// Number of loss periods (RFC 3357 §4).
    pub periods: u64,
    /// Frames in the longest period, and the number of the first one.
    pub longest: u64,
    pub longest_from: u64,
    /// Numbers of the first and of the last lost frame.
    pub first: u64,
    pub last: u64,
}

impl LossPeriods {
    /// One period of `frames` lost frames from number `from` on; `None` without frames.
    pub fn one(from: u64, frames: u64) -> Option<Self> {
        let last = from + frames.checked_sub(1)?;
        Some(Self { periods: 1, longest: frames, longest_from: from, first: from, last })
    }

    /// Both together; the periods of `later` come after those of `self`.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        let longest = if later.longest > self.longest { later } else { self };
        Self {
            periods: self.periods + later.periods,
            longest: longest.longest,
            longest_from: longest.longest_from,
            first: self.first,
            last: later.last,
        }
    }
}

impl ArrivedRange {
    /// The numbers that the queues of a port received, by the tracker of each.
    pub fn of<'a>(queues: impl Iterator<Item = &'a SequenceTracker>) -> Self {
        let queues: Vec<_> = queues.filter_map(|queue| Some((queue, queue.span()?))).collect();
        let number = |at: i64| u64::try_from(at).unwrap_or(0);
        let first = queues.iter().map(|(_, span)| number(span.first)).min().unwrap_or(0);
        let end = queues.iter().map(|(_, span)| number(span.end)).max().unwrap_or(0);
        let losses = match &queues[..] {
            [(one, _)] => {
                let patterns = one.patterns();
                Some(LossPeriods {
                    periods: patterns.periods.periods,
                    longest: patterns.periods.longest,
                    longest_from: patterns.longest_from,
                    first: patterns.first_lost,
                    last: patterns.last_lost,
                })
            }
            [] => Some(LossPeriods::default()),
            _ => None,
        };
        Self { first, end, losses }
    }

    /// The loss periods of a stream of `sent` frames, of which `lost` did not arrive: also those
    /// before the first and after the last frame that arrived. Without known [`Self::losses`],
    /// these count as one period, which is the longest that they can be.
    pub fn losses_of(&self, sent: u64, lost: u64) -> Option<LossPeriods> {
        let (before, after) = (self.first, sent.saturating_sub(self.end));
        let between = match self.losses {
            Some(losses) => Some(losses).filter(|losses| losses.periods > 0),
            None => LossPeriods::one(self.first + 1, lost.saturating_sub(before + after)),
        };
        let parts = [LossPeriods::one(0, before), between, LossPeriods::one(self.end, after)];
        parts.into_iter().flatten().reduce(LossPeriods::then)
    }

    /// Adds the range of another receiver that shares the frames of the port.
    fn share(&mut self, other: Self) {
        match (self.end, other.end) {
            (_, 0) => {}
            (0, _) => *self = other,
            _ => {
                let (first, end) = (self.first.min(other.first), self.end.max(other.end));
                *self = Self { first, end, losses: None };
            }
        }
    }
}

impl StreamRx {
    /// Adds the range of numbers of another receiver at the same port. If the ports differ, only the
    /// receiver with most frames counts.
    pub(crate) fn merge_arrived(&mut self, other: &Self) {
        let Some(added) = other.arrived else { return };
        // Ports of one name in several reports get other names, but not the receivers of nodes.
        let mine = || self.receivers.iter().map(|one| &one.port).chain(&self.ports);
        let shared = other
            .receivers
            .iter()
            .map(|one| &one.port)
            .chain(&other.ports)
            .any(|port| mine().any(|own| own == port));
        let unique = |rx: &Self| rx.packets.saturating_sub(rx.duplicates);
        let more = unique(other) > unique(self);
        match &mut self.arrived {
            Some(one) if shared => one.share(added),
            Some(_) if !more => {}
            arrived => *arrived = Some(added),
        }
    }
}

/// Figures of a stream at one of its receivers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverRx {
    pub port: String,
    /// Received packets, duplicates included.
    pub packets: u64,
    /// Frames that were sent but not received here.
    pub lost: u64,
    /// RFC 5560.
    #[serde(default)]
    pub duplicates: u64,
    /// One-way delay to this port (RFC 7679).
    pub latency_ns: Option<Distribution>,
}

/// Patterns of lost and late frames. These are distributions of frame counts, not of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Patterns {
    /// Number of lost frames per loss period (RFC 3357 §4).
    pub loss_period_packets: Option<Distribution>,
    /// Loss distance (RFC 3357 §3): number of sequence numbers from each lost frame to the previous
    /// lost one; 1 within a loss period.
    pub loss_distance_packets: Option<Distribution>,
    /// Reordering extent (RFC 4737 §4.2.1) of each late frame.
    pub reordering_extent_packets: Option<Distribution>,
    /// The largest n for which each late frame is n-reordered (RFC 4737 §5). TCP treats n >= 3 as a
    /// loss.
    pub n_reordering_packets: Option<Distribution>,
}

/// Received frames, by flow or by source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedFlowsReport {
    /// Kind of the entries in `flows`: `flow`, `source`, or `none`.
    pub by: String,
    /// Maximum number of entries per receive queue. Frames of further flows are counted in `rest`.
    pub limit: u64,
    /// Length of the interval over which peak rates are measured.
    pub interval_ns: u64,
    /// Largest gap between frames of a burst.
    pub burst_gap_ns: u64,
    /// Entries, most octets first.
    pub flows: Vec<ReceivedFlowReport>,
    /// Sums over the flows of each source, most octets first; only if `by` is `flow`.
    pub sources: Vec<ReceivedSourceReport>,
    /// Frames of flows beyond `limit`.
    pub rest: Option<RestReport>,
    /// Memory used for flows. Flows with many frames have histograms.
    pub memory_octets: u64,
}

/// One flow, or one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedFlowReport {
    /// `10.0.0.1:5000 > 10.0.0.2:6000 UDP`, or an address.
    pub name: String,
    /// The port that received it.
    pub port: String,
    /// Addresses: IP, or MAC if there is no IP layer.
    pub src: String,
    /// Empty, and the ports `null`, if `by` is `source`.
    pub dst: String,
    pub src_port: Option<u16>,
    pub dst_port: Option<u16>,
    /// `UDP`, `TCP`, ...; name or number of the EtherType if there is no IP layer.
    pub protocol: String,
    pub packets: u64,
    /// L2, FCS included.
    pub octets: u64,
    /// Times of the first and the last frame, counted from the first frame of the run.
    pub first_s: f64,
    pub last_s: f64,
    /// Mean rate from the first to the last frame; 0 if there is only one frame.
    pub pps: f64,
    pub bps_l2: f64,
    /// Rate in the busiest interval.
    pub peak_pps: f64,
    pub peak_bps_l2: f64,
    pub bursts: Bursts,
    pub arrival_gap_ns: Option<Distribution>,
    /// The same gaps, in bins of equal width; only on request.
    pub arrival_gap_bins: Option<EqualBins>,
    /// Standard deviation of the gaps that the receiver itself causes at this rate, if it was
    /// measured (`squall recv --self-test`, `--floor`), and the remaining one: sqrt(stddev² -
    /// floor²); 0 if the result is below the floor.
    #[serde(default)]
    pub gap_floor_ns: Option<f64>,
    #[serde(default)]
    pub gap_stddev_corrected_ns: Option<f64>,
    /// Figures from sequence numbers, if the packets have any of a known kind.
    pub sequence: Option<SequenceReport>,
}

/// A burst: two frames or more, each at most [`ReceivedFlowsReport::burst_gap_ns`] after the
/// previous one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bursts {
    pub count: u64,
    /// Mean number of frames per burst.
    pub mean_packets: f64,
    /// Number of frames in the largest burst.
    pub max_packets: u64,
    /// Longest time from the first to the last frame of a burst.
    pub max_ns: u64,
}

/// Figures from the sequence numbers in a flow's packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SequenceReport {
    /// `squall`, `mgen`, `crude`, `trex`, `iperf3`, `rtp`.
    pub kind: String,
    /// Number of the stream, for Squall's own frames. Its figures are in `streams` of the report,
    /// not here. `null`: several streams.
    pub stream: Option<u16>,
    /// Packets without a sequence number.
    pub unnumbered_packets: u64,
    /// First copies.
    pub unique_packets: u64,
    /// Number of missing sequence numbers between the first and the last one. Duplicates do not
    /// count as received (RFC 7680).
    pub lost: u64,
    /// lost / (lost + received), 0 to 1.
    pub loss_ratio: f64,
    /// RFC 5560.
    pub duplicates: u64,
    /// Type-P-Reordered (RFC 4737 §3).
    pub reordered: u64,
    /// reordered / received, duplicates left out (RFC 4737 §3.4).
    pub reordering_ratio: f64,
    /// Largest reordering extent (RFC 4737 §4.2.1), in packets.
    pub max_reordering_extent: u64,
    /// Packets whose numbers precede the 4096 that are remembered: late or duplicates. They count
    /// as lost.
    pub too_old: u64,
    /// Number of times that the sender restarted its sequence.
    pub restarts: u64,
    /// Clock of the send times: `wall` or `receiver` if it is within two seconds of that clock on
    /// this machine, so a one-way delay can be measured; `other`; `none` if there are no send times
    /// in a known unit.
    pub clock: String,
    /// One-way delay (RFC 7679).
    pub latency_ns: Option<Distribution>,
    /// Packets that arrived before they were sent according to the clocks; excluded from the
    /// latency.
    pub negative_latency: u64,
    /// Magnitude of the IPDV between consecutive sequence numbers (RFC 3393).
    pub ipdv_ns: Option<Distribution>,
    /// Smoothed interarrival jitter at the end (RFC 3550 §6.4.1).
    pub jitter_ns: Option<f64>,
    pub patterns: Option<Patterns>,
}

/// The flows of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedSourceReport {
    pub name: String,
    pub flows: u64,
    pub packets: u64,
    pub octets: u64,
    /// Mean from the first to the last frame.
    pub pps: f64,
    pub bps_l2: f64,
    /// Lost packets, of flows with sequence numbers.
    pub lost: Option<u64>,
}

/// Frames that belong to no entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestReport {
    pub packets: u64,
    pub octets: u64,
}

/// Summary and histogram, in nanoseconds unless the field's name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// The smallest value.
    pub min: u64,
    /// Exact mean and standard deviation (of the population).
    pub mean: f64,
    pub stddev: f64,
    /// Percentiles are computed from the histogram: at most 0.8 % above the exact value.
    pub p50: u64,
    pub p90: u64,
    #[serde(default)]
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    /// The largest value.
    pub max: u64,
    /// Non-empty bins, ascending: `[lower edge, upper edge, count]`, upper exclusive.
    pub bins: Vec<(u64, u64, u64)>,
}

/// The distribution that a histogram shows; `None` if it is empty.
pub fn distribution(h: &Histogram) -> Option<Distribution> {
    (!h.is_empty()).then(|| Distribution {
        count: h.count(),
        min: h.min(),
        mean: h.mean(),
        stddev: h.stddev(),
        p50: h.quantile(0.5),
        p90: h.quantile(0.9),
        p95: h.quantile(0.95),
        p99: h.quantile(0.99),
        p999: h.quantile(0.999),
        max: h.max(),
        bins: h.bins().collect(),
    })
}

/// Number of values per bin. All bins have the same width, and the first starts at 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EqualBins {
    pub width_ns: u64,
    /// `counts[i]` is the number of values from i times the width to below i + 1 times the width.
    pub counts: Vec<u64>,
    /// Values above the last bin.
    pub beyond: u64,
}

/// A sample of the series; its counters count from the previous sample. In a run of many hours,
/// only every second, fourth, ... sample is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Seconds since the first frame was due; 0 in virtual time.
    pub t_s: f64,
    pub ports: Vec<PortSample>,
    pub streams: Vec<StreamSample>,
    /// Present only for a capture.
    #[serde(default)]
    pub capture: Option<CaptureSample>,
    /// Present only for flows: a row per template and side and, if there are several templates, one
    /// for their sum (`all templates`).
    #[serde(default)]
    pub flows: Vec<TemplateSample>,
}

/// Flows of one template at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateSample {
    /// Name of the template, or `all templates` for the sum.
    pub name: String,
    /// `client` or `server`.
    pub side: String,
    /// Open flows.
    pub active: u64,
    /// Flows started and flows completed per second since the previous sample.
    pub attempted_cps: f64,
    pub completed_cps: f64,
    /// Counts so far: flows that failed; flows that were due and not started; and those of the
    /// latter for which the generator was late.
    pub failed: u64,
    pub not_begun: u64,
    pub late: u64,
    /// Received application data since the previous sample, in bits per second.
    pub goodput_bps: f64,
    /// Percentiles since the previous sample.
    pub setup_p99_ns: Option<u64>,
    pub transaction_p99_ns: Option<u64>,
}

/// Packets that a capture wrote and lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureSample {
    /// Rates since the previous sample. Bits are those of the captured packets, without FCS.
    pub written_pps: f64,
    pub written_bps: f64,
    /// Number so far, including files that the ring has removed.
    pub files: u64,
    pub file_octets: u64,
    /// Packets lost so far, in the kernel and in the process.
    pub dropped_by_kernel: u64,
    pub dropped: u64,
}

/// Rates of a port since the previous sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortSample {
    pub name: String,
    pub tx_pps: f64,
    pub tx_bps_l1: f64,
    pub tx_bps_l2: f64,
    pub rx_pps: f64,
    pub rx_bps_l1: f64,
    pub rx_bps_l2: f64,
}

/// Rates and percentiles of a stream since the previous sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSample {
    pub name: String,
    pub tx_pps: f64,
    pub rx_pps: f64,
    /// Gaps in the sequence so far. Frames in flight do not count as lost.
    pub lost: u64,
    /// `null` if nothing was measured, or if there are more than 64 streams.
    pub latency_p50_ns: Option<u64>,
    pub latency_p99_ns: Option<u64>,
    pub late_p99_ns: Option<u64>,
}

/// CPU time of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    pub user_s: f64,
    pub system_s: f64,
    /// CPU seconds per million frames, sent and received ones.
    pub per_mpkt_s: Option<f64>,
}

/// CPU time that the run needed and did not get, as measured by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contention {
    /// Number of times that a sending or receiving thread lost its CPU while it was ready to run.
    pub involuntary_switches: u64,
    /// Time in which the process's control group had used up its quota.
    pub throttled_s: f64,
    /// For the whole machine: time in which a task waited for a CPU (PSI), and steal time.
    pub pressure_s: f64,
    pub steal_s: f64,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerReport {
    /// The CPU to which it was bound; `null` if it was not bound.
    pub cpu: Option<u32>,
    pub cpu_s: f64,
    pub tx_packets: u64,
    pub rx_packets: u64,
}

/// Memory of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Peak resident memory of the process.
    pub peak_rss_octets: u64,
}

impl Report {
    /// Whether the run was meant to send anything. A run that only received has no sender figures.
    pub fn sends(&self) -> bool {
        // Streams from other senders have no port here.
        !self.replays.is_empty()
            || self.streams.iter().any(|s| !s.port.is_empty())
            || self
                .ports
                .iter()
                .any(|p| p.tx.packets > 0 || p.tx.errors > 0 || !p.tx.not_sent.is_empty())
    }

    /// All distributions of the report in a fixed order, for programs that store the bins
    /// separately.
    pub fn distributions_mut(&mut self) -> impl Iterator<Item = &mut Distribution> {
        let ports = self
            .ports
            .iter_mut()
            .flat_map(|p| [&mut p.tx.departure_error_ns, &mut p.rx.arrival_gap_ns]);
        let streams = self.streams.iter_mut().flat_map(|s| {
            let rx = s.rx.as_mut().map(|rx| {
                let patterns = rx.patterns.as_mut().map(Patterns::distributions_mut);
                [&mut rx.latency_ns, &mut rx.ipdv_ns, &mut rx.arrival_gap_ns]
                    .into_iter()
                    .chain(patterns.into_iter().flatten())
            });
            rx.into_iter().flatten().chain([&mut s.departure_error_ns])
        });
        let received =
            self.received_flows.iter_mut().flat_map(|all| &mut all.flows).flat_map(|flow| {
                let sequence = flow.sequence.as_mut().map(|s| {
                    let patterns = s.patterns.as_mut().map(Patterns::distributions_mut);
                    [&mut s.latency_ns, &mut s.ipdv_ns]
                        .into_iter()
                        .chain(patterns.into_iter().flatten())
                });
                [&mut flow.arrival_gap_ns].into_iter().chain(sequence.into_iter().flatten())
            });
        let flows = self.flows.iter_mut().flat_map(flows::FlowsReport::distributions_mut);
        let hosts = self.hosts.iter_mut().flat_map(hosts::HostsReport::distributions_mut);
        ports.chain(streams).chain(received).chain(flows).chain(hosts).flatten()
    }
}

impl Patterns {
    fn distributions_mut(&mut self) -> [&mut Option<Distribution>; 4] {
        let Self {
            loss_period_packets,
            loss_distance_packets,
            reordering_extent_packets,
            n_reordering_packets,
        } = self;
        [
            loss_period_packets,
            loss_distance_packets,
            reordering_extent_packets,
            n_reordering_packets,
        ]
    }
}

impl CaptureReport {
    /// Packets lost between the interface and the process.
    pub fn lost_in_kernel(&self) -> u64 {
        self.dropped_by_kernel.values().sum()
    }

    /// Packets lost in this process.
    pub fn lost_here(&self) -> u64 {
        self.dropped.values().sum()
    }
}

impl PortReport {
    /// Frames sent and received that the interface counted beyond those counted here (drops between
    /// the two included); `(0, 0)` if both agree, `None` if there is no interface.
    pub fn interface_surplus(&self) -> Option<(i64, i64)> {
        let interface = self.interface.as_ref()?;
        let received = self.rx.packets.saturating_add(self.rx.drops.values().sum());
        // Some interfaces count a GSO frame as one (veth), others count the frames into which it is
        // cut, so both are accepted.
        let surplus = |interface: u64, process: u64, gso_frames: u64, segments: u64| {
            let whole = process.wrapping_sub(segments).wrapping_add(gso_frames);
            let surplus = [process, whole].map(|process| interface.wrapping_sub(process) as i64);
            surplus.into_iter().min_by_key(|s| s.unsigned_abs()).unwrap_or(0)
        };
        let (tx, rx) = (&self.tx, &self.rx);
        Some((
            surplus(interface.tx_packets, tx.packets, tx.gso_frames, tx.segments),
            surplus(interface.rx_packets, received, rx.gso_frames, rx.segments),
        ))
    }
}

impl StreamReport {
    /// (achieved - requested) / requested. `None` if no rate was requested, and for a single frame,
    /// which has no rate.
    pub fn rate_error(&self) -> Option<f64> {
        if self.tx_packets > 0 && self.tx_pps == 0.0 {
            return None;
        }
        let asked = self.asked_pps.filter(|asked| *asked > 0.0)?;
        Some((self.tx_pps - asked) / asked)
    }
}

/// The JSON schema of [`Report`], checked in as `schemas/report.schema.json`.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Report);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_histogram_is_among_the_distributions() {
        let mut report = crate::render::sample::report(3);
        let bins = report.to_json().matches("\"bins\"").count();
        assert_eq!(report.distributions_mut().count(), bins);
    }

    /// `BLESS=1` rewrites the schema file.
    #[test]
    fn the_schema_that_is_checked_in_is_the_one_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/report.schema.json");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap();
        assert!(
            checked_in == schema(),
            "{path} lags behind report.rs: BLESS=1 cargo test -p squall-report schema"
        );
    }

    #[test]
    fn the_interface_agrees_when_drops_explain_the_difference() {
        let mut port = PortReport::default();
        assert_eq!(port.interface_surplus(), None);
        port.tx.packets = 10;
        port.rx.packets = 7;
        port.rx.drops.insert("ring full".into(), 3);
        port.interface =
            Some(InterfaceReport { tx_packets: 9, rx_packets: 10, ..InterfaceReport::default() });
        assert_eq!(port.interface_surplus(), Some((-1, 0)));
    }

    #[test]
    fn an_interface_may_count_gso_frames_as_one_or_as_what_they_become() {
        let mut port = PortReport::default();
        (port.tx.packets, port.tx.gso_frames, port.tx.segments) = (100, 2, 90);
        for (counted, surplus) in [(100, 0), (12, 0), (11, -1), (101, 1)] {
            port.interface =
                Some(InterfaceReport { tx_packets: counted, ..InterfaceReport::default() });
            assert_eq!(port.interface_surplus(), Some((surplus, 0)), "{counted}");
        }
    }
}
