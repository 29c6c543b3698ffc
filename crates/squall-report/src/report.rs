//! The result of a run: what the table, the JSON, the HTML and Python show. Units live in names.

pub mod attack;
pub mod fail_if;
pub mod flows;
pub mod source;

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_stats::Histogram;

/// The version of this structure.
pub const SCHEMA: &str = "squall-report/1";

/// A finished run (or a running one, so far).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// `squall-report/1`.
    pub schema: String,
    /// The command line, or `python`.
    pub command: String,
    /// Of the program that made the run.
    pub squall_version: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// First departure due to last frame out, at the engine's clock.
    pub duration_s: f64,
    pub seed: u64,
    /// Which frames were received, in the language of tcpdump; `null`: all that came.
    #[serde(default)]
    pub filter: Option<String>,
    pub host: Host,
    /// Whether the figures can be trusted, and if not, why.
    pub verdict: Verdict,
    /// The end that was asked for.
    #[serde(default)]
    pub asked: Asked,
    /// It was stopped before the end that was asked for.
    #[serde(default)]
    pub cut_short: bool,
    /// What was asked of each source of traffic, and what it did.
    #[serde(default)]
    pub sources: Vec<source::SourceRecord>,
    pub ports: Vec<PortReport>,
    /// Streams that the run sent, and those sent elsewhere that it received.
    pub streams: Vec<StreamReport>,
    /// What was written to capture files, and what was not; only of a capture.
    #[serde(default)]
    pub capture: Option<CaptureReport>,
    /// What was read of captures and sent again, replay by replay; attacks that left as frames,
    /// too.
    #[serde(default)]
    pub replays: Vec<ReplayReport>,
    /// Flows that were begun and served; only of a profile with templates.
    #[serde(default)]
    pub flows: Option<flows::FlowsReport>,
    /// What was attacked with, one for each `[[attack]]` of the profile.
    #[serde(default)]
    pub attacks: Vec<attack::AttackReport>,
    /// The threads that sent and received.
    pub workers: Vec<WorkerReport>,
    /// What was received flow by flow; only of commands that look at that (`squall recv`).
    #[serde(default)]
    pub received_flows: Option<ReceivedFlowsReport>,
    /// Samples taken during the run.
    pub series: Vec<Sample>,
    pub cpu: Cpu,
    #[serde(default)]
    pub contention: Contention,
    pub memory: Memory,
    /// What the user should know: a fallback taken, a rate clamped.
    pub notes: Vec<String>,
}

/// Captures that were sent again. Octets are those of the captures, without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayReport {
    /// Of `[[replay]]`; `attacks` of attacks that left as frames.
    pub name: String,
    pub files: Vec<String>,
    /// Loops that were sent to their end.
    pub loops: u64,
    /// Frames that left, on all ports, and their octets without FCS.
    pub packets: u64,
    pub octets: u64,
    /// What was read, each loop anew unless it was preloaded.
    pub read: ReplayRead,
    pub ports: Vec<ReplayPort>,
    /// What flows left, in tcpreplay's words; `null` if they were not counted.
    pub flows: Option<ReplayFlows>,
    /// What the edits did; `null` without edits.
    pub edited: Option<ReplayEdits>,
    /// How long the sender had nothing to send, because reading was behind.
    pub starved_s: f64,
    /// Captures could not be read to their end: what is before the fault was sent.
    pub fault: Option<String>,
}

/// Packets of captures by what became of them before they were sent; octets as captured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayRead {
    pub packets: u64,
    pub octets: u64,
    /// Were left out: not wanted by the filter, or by their numbers.
    pub unwanted: u64,
    /// Were left out: what tells sides told none.
    pub sideless: u64,
    /// Were left out: the edits dropped them.
    pub edited_out: u64,
    /// Were left out: longer than their port takes.
    pub too_long: u64,
    /// Were left out: no Ethernet frames, and nothing that could be made such.
    pub not_ethernet: u64,
    /// Have fewer octets in the capture than they had on the wire.
    pub cut: u64,
    /// Were captured earlier than one before them, which they follow at once.
    pub backward: u64,
}

/// A flow is what goes one way: addresses, protocol and ports. Where each loop has its own
/// addresses, each has its flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayFlows {
    /// Begun: the unique ones, and those that began anew after they had expired.
    pub flows: u64,
    /// Of different addresses, protocols or ports.
    pub unique: u64,
    /// Were idle for longer than `--flow-expiry` when their next packet left.
    pub expired: u64,
    /// Flows a second, over the replay's duration.
    pub flows_per_second: f64,
    pub flow_packets: u64,
    /// No IP, fragments without ports, cut or contradictory headers.
    pub non_flow_packets: u64,
    /// Of the non-flow packets, those with cut or contradictory headers.
    pub invalid_packets: u64,
    /// Of the flow packets, those of flows that there was no room to count.
    pub overflow_packets: u64,
    /// By IP version and protocol, the busiest first.
    pub protocols: Vec<ReplayShare>,
    /// Who sent most octets; by the captures' addresses.
    pub talkers: Vec<ReplayShare>,
    /// Those with most octets; by the captures' addresses.
    pub top_flows: Vec<ReplayShare>,
}

/// What left of one protocol, host or flow. Octets are those of the captures, without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayShare {
    pub name: String,
    pub packets: u64,
    pub octets: u64,
}

/// Packets that were edited as they were read, which is ahead of sending; a loop counts anew what
/// it edits anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayEdits {
    pub changed: u64,
    pub dropped: u64,
    /// More packets than there were: fragments.
    pub added: u64,
}

/// Frames of one port of a replay, in tcpreplay's words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayPort {
    pub port: String,
    /// Handed to the port: `successful` and `failed` together.
    pub attempted: u64,
    /// Taken by the port for good.
    pub successful: u64,
    /// Refused by the port, or at hand when it was lost.
    pub failed: u64,
    /// Sent without their end: longer than the port takes.
    pub truncated: u64,
    /// Handed over once more because the port was full.
    pub retried: u64,
}

/// The machine that the run was on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    pub name: String,
    pub os: String,
    pub kernel: String,
    pub cpu_model: String,
    pub cpus: u32,
}

/// The end of a run as it was asked for; `null`: none was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// Seconds.
    pub duration_s: Option<f64>,
    /// On all ports together; octets with FCS.
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
    /// What ended the run.
    #[serde(default)]
    pub ended_by: EndedBy,
    /// Why it is not valid.
    pub reasons: Vec<Reason>,
    /// What of `abort_if` holds, with figures: the criterion that ended the run, or all that hold
    /// at its end.
    #[serde(default)]
    pub failed: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictStatus {
    /// The generator offered what was asked for, within the stated bounds, and no counter disagrees
    /// with another.
    #[default]
    Valid,
    /// It is not, for the reasons given.
    NotValid,
    /// As valid, for what ran: the run was stopped before the end that was asked for.
    Interrupted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// It has not ended.
    #[default]
    Running,
    /// All was done.
    Done,
    /// The duration that was asked for was over.
    Duration,
    /// The number of packets that was asked for was reached.
    Packets,
    /// The number of octets that was asked for was reached.
    Octets,
    /// Somebody stopped it: a user of the library, of the daemon.
    Stopped,
    /// A signal: SIGINT.
    Sigint,
    /// A signal: SIGTERM.
    Sigterm,
    /// A signal: SIGHUP.
    Sighup,
    /// A criterion of `abort_if` that holds; `failed` has it.
    Criterion,
    /// The process was killed; this is what had been written until then.
    Killed,
}

/// Why a run is not valid: `generator-bound: port A: ...`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    pub code: ReasonCode,
    /// What it is about, with figures.
    pub text: String,
    /// What to try; empty where nothing is known.
    #[serde(default)]
    pub hint: String,
}

/// Who is to blame, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonCode {
    /// Frames left late or not at all, and the port was free: the sender was the limit.
    GeneratorBound,
    /// The sender wanted to run and had no CPU.
    Starved,
    /// More left in a window than was asked for, beyond the allowed excess.
    Burst,
    /// What was asked for was not done.
    NotDone,
    /// A capture that has one direction only was played as if it had both.
    OneSided,
    /// The link was down while frames were due.
    LinkDown,
    /// Frames left late or not at all while the port was full or taking frames.
    PortBound,
    /// The port refused frames, each with a reason.
    PortRefused,
    /// The port or its interface went away.
    PortLost,
    /// Frames came and were dropped before they were read.
    ReceiverBound,
    /// The interface counted other than this process did.
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
    /// The number of the signal.
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
    /// One more reason why the run is not valid, and what to try.
    pub(crate) fn say(&mut self, code: ReasonCode, text: String, hint: &str) {
        self.reasons.push(Reason { code, text, hint: hint.to_owned() });
        (self.status, self.valid) = (VerdictStatus::NotValid, false);
    }

    /// It was stopped before its end; nothing else is wrong with it.
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
    /// `none`, `process`, `kernel`, `hardware`, `virtual`: where receive instants come from.
    pub timestamps: String,
    pub tx: TxReport,
    pub rx: RxReport,
    /// What the interface counted during the run, where there is one.
    pub interface: Option<InterfaceReport>,
    /// When the link went down, and when it came up again; the first 10,000 changes.
    #[serde(default)]
    pub link_events: Vec<LinkEvent>,
}

/// A port's link went down, or came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkEvent {
    /// Seconds since the first departure was due, when it was seen; 0 before.
    pub t_s: f64,
    pub up: bool,
}

impl PortReport {
    /// Frames that were due and did not leave, and those that came and were not taken.
    pub fn drops(&self) -> u64 {
        self.tx.errors
            + self.tx.not_sent.values().sum::<u64>()
            + self.rx.drops.values().sum::<u64>()
    }
}

/// Frames that the port took for good. Octets are L2, FCS included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TxReport {
    pub packets: u64,
    pub octets: u64,
    /// Means over the run's duration.
    pub pps: f64,
    pub bps_l1: f64,
    pub bps_l2: f64,
    /// GSO frames that were handed over whole, to be cut on the way, and the frames that became
    /// of them, which are among `packets`.
    #[serde(default)]
    pub gso_frames: u64,
    #[serde(default)]
    pub segments: u64,
    /// Frames that the port refused.
    pub errors: u64,
    /// Frames that were due and did not leave, by reason.
    pub not_sent: BTreeMap<String, u64>,
    /// Time during which the port took no frames though some were due.
    pub blocked_s: f64,
    /// Time in which the port was taking frames: copies and system calls. Of several workers, that
    /// of the busiest.
    pub sending_s: f64,
    /// Actual minus due instant of departure, over all streams.
    pub departure_error_ns: Option<Distribution>,
    /// Hash over all frames' octets, whatever their order, hexadecimal; only when asked for.
    pub fingerprint: Option<String>,
}

/// Frames that reached the process. Octets are L2, FCS included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RxReport {
    pub packets: u64,
    pub octets: u64,
    /// Means over the run's duration; those of flows and sources are from their first to their last
    /// frame.
    pub pps: f64,
    pub bps_l1: f64,
    pub bps_l2: f64,
    /// GSO frames that came whole, because the kernel or the NIC had joined frames or not cut
    /// them yet, and the frames in them, which are among `packets`.
    #[serde(default)]
    pub gso_frames: u64,
    #[serde(default)]
    pub segments: u64,
    /// Frames without our signature (of streams without `latency`, or foreign).
    pub unsigned_packets: u64,
    /// Frames lost between the interface and the process, by reason.
    pub drops: BTreeMap<String, u64>,
    /// As that of [`TxReport`].
    pub fingerprint: Option<String>,
    /// Gaps between consecutive frames; `null` if there are not two.
    pub arrival_gap_ns: Option<Distribution>,
    /// The same gaps in equal bins; only when asked for.
    pub arrival_gap_bins: Option<EqualBins>,
    /// What the arrival instants are multiples of, as far as they show it; where flows are looked
    /// at.
    #[serde(default)]
    pub timestamp_resolution_ns: Option<u64>,
    /// Of the busiest interval ([`ReceivedFlowsReport::interval_ns`]); where flows are looked at and one
    /// queue receives.
    #[serde(default)]
    pub peak_pps: Option<f64>,
    #[serde(default)]
    pub peak_bps_l2: Option<f64>,
    #[serde(default)]
    pub bursts: Option<Bursts>,
}

/// A capture: every packet that the filter took is `received`, and is either written, lost
/// (`dropped_by_kernel`, `dropped`) or not wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureReport {
    /// `pcapng`; `pcap, nanoseconds`; `pcap, microseconds`.
    pub format: String,
    /// Octets of a packet that are kept at most.
    pub snaplen: u32,
    /// Frames that came to the interfaces, wanted or not, by their own counters; `null` where no
    /// port has an interface.
    pub arrived: Option<u64>,
    /// Frames that the filter took, as the ports count them, lost ones included; a GSO frame is
    /// one. `null` where a port does not count.
    pub accepted: Option<u64>,
    /// Packets that the filter took on all interfaces, lost ones included; the frames that were cut
    /// out of GSO frames each.
    pub received: u64,
    /// What the interfaces counted as lost, by counter. Not among the lost: they may have been lost
    /// to others, and what a port counts itself (`dropped_by_kernel`) may be there, too.
    pub dropped_by_interface: BTreeMap<String, u64>,
    /// Lost between the interface and the process, by reason.
    pub dropped_by_kernel: BTreeMap<String, u64>,
    /// Lost in the process, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Came before or after what was asked for (a trigger, a count), by reason; not lost.
    pub unwanted: BTreeMap<String, u64>,
    /// All that were lost.
    pub lost: u64,
    /// Packet loss ratio: lost / (received - unwanted), 0 to 1.
    pub loss_ratio: f64,
    /// Written packets of which octets were cut off because the buffer was filling, not by the
    /// snaplen.
    pub truncated: u64,
    /// In files, or printed where there are none.
    pub written_packets: u64,
    /// Octets of these packets, as captured, without FCS.
    pub written_octets: u64,
    /// Octets of all files.
    pub file_octets: u64,
    /// The newest, at most 1000.
    pub files: Vec<CaptureFile>,
    /// All of them.
    pub files_written: u64,
    /// Files that the ring has removed; their packets are among the written.
    pub removed_files: u64,
    pub removed_packets: u64,
    pub removed_octets: u64,
    /// GSO frames that came joined, and the frames in them.
    pub gso_frames: u64,
    pub segments: u64,
    /// Stretches of packets that stand in a file behind a later packet of another queue.
    pub out_of_order: u64,
    /// Memory between the wire and the file, and how much of it waited to be written at most.
    pub buffer_octets: u64,
    pub buffer_peak_octets: u64,
    /// When the trigger came; RFC 3339, UTC.
    pub triggered: Option<String>,
    /// What ended the capture before it was stopped: `packets`, `octets`, `files`,
    /// `after the trigger`, `reader gone`, `write error`.
    pub ended_by: Option<String>,
    /// Why not everything could be written.
    pub error: Option<String>,
}

/// A file of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureFile {
    pub name: String,
    pub packets: u64,
    /// Its size.
    pub octets: u64,
    /// Of the first and the last packet; RFC 3339, UTC; `null` if it has none.
    pub first: Option<String>,
    pub last: Option<String>,
}

/// Counters of the interface itself, without FCS, difference over the run.
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
    /// Not received by the device for want of room; some drivers count these among `rx_dropped` or
    /// `rx_errors`, too.
    pub rx_missed: u64,
    /// The device's queue overran; as for `rx_missed`.
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
    /// Mean over the stream's own active time.
    pub tx_pps: f64,
    /// The rate that was asked for, frames a second; `null` for `max`.
    pub asked_pps: Option<f64>,
    /// Frames that were due and did not leave, by reason.
    pub not_sent: BTreeMap<String, u64>,
    /// Actual minus due instant of departure; early frames do not exist.
    pub departure_error_ns: Option<Distribution>,
    /// The receiver's view; only of streams with `latency`.
    pub rx: Option<StreamRx>,
}

/// A stream as its receivers saw it, from signatures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamRx {
    /// Ports it was seen on.
    pub ports: Vec<String>,
    /// Duplicates included.
    pub packets: u64,
    pub octets: u64,
    /// Sent and never seen, duplicates not counted as seen (RFC 7680).
    pub lost: u64,
    /// lost / sent, 0 to 1.
    pub loss_ratio: f64,
    /// RFC 5560.
    pub duplicates: u64,
    /// Type-P-Reordered (RFC 4737 §3): sequence below the next expected.
    pub reordered: u64,
    /// Largest reordering extent (RFC 4737 §4.2.1), packets.
    pub max_reordering_extent: u64,
    /// One-way delay (RFC 7679), both ends on one clock.
    pub latency_ns: Option<Distribution>,
    /// Selection function: consecutive sequence numbers (RFC 3393); magnitude.
    pub ipdv_ns: Option<Distribution>,
    /// Gaps between consecutive frames of the stream.
    pub arrival_gap_ns: Option<Distribution>,
    /// Smoothed interarrival jitter at the end (RFC 3550 §6.4.1).
    #[serde(default)]
    pub jitter_ns: Option<f64>,
    /// reordered / received, duplicates left out (RFC 4737 §3.4).
    #[serde(default)]
    pub reordering_ratio: f64,
    /// How often the sender began to count anew; only of streams that are sent elsewhere.
    #[serde(default)]
    pub restarts: u64,
    /// How losses are spread, and how late frames are late; where there are any.
    #[serde(default)]
    pub patterns: Option<Patterns>,
}

/// How losses are spread, and how late frames are late: distributions of frames, not of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Patterns {
    /// Loss periods (RFC 3357 §4), and the frames lost in each.
    pub loss_period_packets: Option<Distribution>,
    /// Loss distance (RFC 3357 §3): of each lost frame to the lost one before it, in sequence
    /// numbers; 1 within a period.
    pub loss_distance_packets: Option<Distribution>,
    /// Reordering extent (RFC 4737 §4.2.1) of each frame that came late.
    pub reordering_extent_packets: Option<Distribution>,
    /// The largest n for which each frame that came late is n-reordered (RFC 4737 §5); TCP takes 3
    /// for a loss.
    pub n_reordering_packets: Option<Distribution>,
}

/// What was received, flow by flow or source by source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedFlowsReport {
    /// `flow`, `source`, or `none`: what has an entry in `flows`.
    pub by: String,
    /// So many entries at most in each receive queue; the frames of others are counted in `rest`.
    pub limit: u64,
    /// Peak rates are those of the busiest interval of this length.
    pub interval_ns: u64,
    /// Frames of a burst are no further apart.
    pub burst_gap_ns: u64,
    /// Most octets first.
    pub flows: Vec<ReceivedFlowReport>,
    /// The flows of each source together, most octets first; where `by` is `flow`.
    pub sources: Vec<ReceivedSourceReport>,
    /// Frames of flows that were too many.
    pub rest: Option<RestReport>,
    /// Memory of the flows; those in it that many frames came of have histograms.
    pub memory_octets: u64,
}

/// One flow, or one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedFlowReport {
    /// `10.0.0.1:5000 > 10.0.0.2:6000 UDP`, or an address.
    pub name: String,
    /// The port that it was received on.
    pub port: String,
    /// Addresses: IP, or MAC where there is no IP.
    pub src: String,
    /// Empty, and the ports `null`, where sources have the entries.
    pub dst: String,
    pub src_port: Option<u16>,
    pub dst_port: Option<u16>,
    /// `UDP`, `TCP`, ...; without IP the EtherType's name or number.
    pub protocol: String,
    pub packets: u64,
    /// L2, FCS included.
    pub octets: u64,
    /// Instants of the first and the last frame, since the first frame of all.
    pub first_s: f64,
    pub last_s: f64,
    /// Mean from the first to the last frame; 0 of one frame.
    pub pps: f64,
    pub bps_l2: f64,
    /// Of the busiest interval.
    pub peak_pps: f64,
    pub peak_bps_l2: f64,
    pub bursts: Bursts,
    pub arrival_gap_ns: Option<Distribution>,
    /// The same gaps in equal bins; only when asked for.
    pub arrival_gap_bins: Option<EqualBins>,
    /// Standard deviation of gaps that is the receiver's own at such a rate, where that was
    /// measured (`squall recv --self-test`, `--floor`), and what remains without it: sqrt(stddev² -
    /// floor²); 0 where nothing does, that is below the floor.
    #[serde(default)]
    pub gap_floor_ns: Option<f64>,
    #[serde(default)]
    pub gap_stddev_corrected_ns: Option<f64>,
    /// Where its packets are numbered in a way that is known.
    pub sequence: Option<SequenceReport>,
}

/// A burst: two frames or more, each at most [`ReceivedFlowsReport::burst_gap_ns`] behind the one before
/// it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bursts {
    pub count: u64,
    /// Frames in a burst.
    pub mean_packets: f64,
    /// Frames in the largest burst.
    pub max_packets: u64,
    /// From first to last frame.
    pub max_ns: u64,
}

/// What the numbers in a flow's packets tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SequenceReport {
    /// `squall`, `mgen`, `crude`, `trex`, `iperf3`, `rtp`.
    pub kind: String,
    /// Of frames of ours: the stream, whose figures are among the report's streams, and none here.
    /// `null`: of several.
    pub stream: Option<u16>,
    /// Packets that have no such number.
    pub unnumbered_packets: u64,
    /// First copies.
    pub unique_packets: u64,
    /// Missing between the first and the last number, duplicates not counted as seen (RFC 7680).
    pub lost: u64,
    /// lost / (lost + received), 0 to 1.
    pub loss_ratio: f64,
    /// RFC 5560.
    pub duplicates: u64,
    /// Type-P-Reordered (RFC 4737 §3).
    pub reordered: u64,
    /// reordered / received, duplicates left out (RFC 4737 §3.4).
    pub reordering_ratio: f64,
    /// Largest reordering extent (RFC 4737 §4.2.1), packets.
    pub max_reordering_extent: u64,
    /// Older than what is remembered (4096 numbers): late or duplicates. They count as lost.
    pub too_old: u64,
    /// How often the sender began to count anew.
    pub restarts: u64,
    /// Whose clock the send times are of: `wall` or `receiver`, within two seconds of ours, so that
    /// there is a one-way delay; `other`; `none` where there is no send time in a known unit.
    pub clock: String,
    /// One-way delay (RFC 7679).
    pub latency_ns: Option<Distribution>,
    /// Packets that came before they were sent, by the clocks; they are in no latency.
    pub negative_latency: u64,
    /// Selection function: consecutive sequence numbers (RFC 3393); magnitude.
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
    /// Of the flows whose packets are numbered.
    pub lost: Option<u64>,
}

/// Frames that have no entry of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestReport {
    pub packets: u64,
    pub octets: u64,
}

/// Summary and histogram, of nanoseconds where its name says nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Values seen.
    pub count: u64,
    /// The smallest value.
    pub min: u64,
    /// Exact; the deviation is that of the population.
    pub mean: f64,
    pub stddev: f64,
    /// Percentiles are those of the histogram: at most 0.8 % above the exact value.
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

/// `None` of an empty one.
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

/// Counts in equal bins from 0 on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EqualBins {
    pub width_ns: u64,
    /// Count i is that of the values from i times the width to below the next.
    pub counts: Vec<u64>,
    /// Values above the last bin.
    pub beyond: u64,
}

/// One instant of the series; counters since the instant before. Of a run of many hours every
/// second, fourth, ... instant is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Since the first frame was due; 0 on virtual time.
    pub t_s: f64,
    pub ports: Vec<PortSample>,
    pub streams: Vec<StreamSample>,
    /// Only of a capture.
    #[serde(default)]
    pub capture: Option<CaptureSample>,
    /// Only of flows: each template and side, and behind several their sum (`all templates`).
    #[serde(default)]
    pub flows: Vec<TemplateSample>,
}

/// Flows of one template at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateSample {
    /// The template's; `all templates` for their sum, after several.
    pub name: String,
    /// `client` or `server`.
    pub side: String,
    /// Open.
    pub active: u64,
    /// Begun, and ended as they should, a second, since the sample before.
    pub attempted_cps: f64,
    pub completed_cps: f64,
    /// So far: ended otherwise; due and not begun; of these, because the generator was late.
    pub failed: u64,
    pub not_begun: u64,
    pub late: u64,
    /// Application data received, bits a second, since the sample before.
    pub goodput_bps: f64,
    /// Since the sample before.
    pub setup_p99_ns: Option<u64>,
    pub transaction_p99_ns: Option<u64>,
}

/// What a capture wrote, and what it lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureSample {
    /// Since the sample before; bits of the packets as captured, without FCS.
    pub written_pps: f64,
    pub written_bps: f64,
    /// So far, files that the ring has removed included.
    pub files: u64,
    pub file_octets: u64,
    /// Lost so far, before and in the process.
    pub dropped_by_kernel: u64,
    pub dropped: u64,
}

/// Rates of a port since the sample before.
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

/// Rates and percentiles of a stream since the sample before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSample {
    pub name: String,
    pub tx_pps: f64,
    pub rx_pps: f64,
    /// Gaps in the sequence so far; what is on its way is not lost.
    pub lost: u64,
    /// `null` where nothing was measured, and with more than 64 streams.
    pub latency_p50_ns: Option<u64>,
    pub latency_p99_ns: Option<u64>,
    pub late_p99_ns: Option<u64>,
}

/// CPU time of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    pub user_s: f64,
    pub system_s: f64,
    /// CPU seconds for a million frames sent and received.
    pub per_mpkt_s: Option<f64>,
}

/// What the kernel says of CPU time that was wanted during the run and not had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contention {
    /// Times that a sending or receiving thread was taken off its CPU though it wanted to go on.
    pub involuntary_switches: u64,
    /// Time for which the control group of the process had used up its quota.
    pub throttled_s: f64,
    /// Of the whole machine: time in which something waited for a CPU (PSI), and CPU time that the
    /// hypervisor took.
    pub pressure_s: f64,
    pub steal_s: f64,
}

/// What one thread did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerReport {
    /// The CPU that it was bound to; `null` where the system moved it as it liked.
    pub cpu: Option<u32>,
    pub cpu_s: f64,
    pub tx_packets: u64,
    pub rx_packets: u64,
}

/// Memory of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// The most that the process ever had.
    pub peak_rss_octets: u64,
}

impl Report {
    /// Whether anything was to be sent; who only received has no sender's figures.
    pub fn sends(&self) -> bool {
        // Streams that are sent elsewhere have no port here.
        !self.replays.is_empty()
            || self.streams.iter().any(|s| !s.port.is_empty())
            || self
                .ports
                .iter()
                .any(|p| p.tx.packets > 0 || p.tx.errors > 0 || !p.tx.not_sent.is_empty())
    }

    /// Every distribution that is there, in a fixed order: for who keeps bins elsewhere.
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
        ports.chain(streams).chain(received).chain(flows).flatten()
    }

    /// The report of a run or a part of it as one line of JSON would have it, indented.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("a report has string keys and no custom serializers")
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
    /// Lost between the interface and the process.
    pub fn lost_in_kernel(&self) -> u64 {
        self.dropped_by_kernel.values().sum()
    }

    /// Lost in the process.
    pub fn lost_here(&self) -> u64 {
        self.dropped.values().sum()
    }
}

impl PortReport {
    /// What the interface counted beyond what this process did, frames sent and received (drops
    /// between the two included); `(0, 0)` when both agree, `None` without an interface.
    pub fn interface_surplus(&self) -> Option<(i64, i64)> {
        let interface = self.interface.as_ref()?;
        let received = self.rx.packets.saturating_add(self.rx.drops.values().sum());
        // Some interfaces count a GSO frame as one (veth), others as the frames that it becomes.
        let surplus = |theirs: u64, ours: u64, gso_frames: u64, segments: u64| {
            let whole = ours.wrapping_sub(segments).wrapping_add(gso_frames);
            let surplus = [ours, whole].map(|ours| theirs.wrapping_sub(ours) as i64);
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
    /// (achieved - asked) / asked; `None` where no rate was asked for, or one frame has no rate.
    pub fn rate_error(&self) -> Option<f64> {
        if self.tx_packets > 0 && self.tx_pps == 0.0 {
            return None;
        }
        let asked = self.asked_pps.filter(|asked| *asked > 0.0)?;
        Some((self.tx_pps - asked) / asked)
    }
}

/// The JSON schema of [`Report`], as checked in at `schemas/report.schema.json`.
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

    /// `BLESS=1` rewrites the file.
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
