//! Statistics of captures: the figures of capinfos, protocol shares, lengths, gaps and flows.
//!
//! Lengths are octets on the wire **without** FCS, as in captures and in the output of capinfos and
//! tcpdump. Sizes in profiles and in reports of runs, by contrast, include the FCS.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::{Cpu, Distribution, Memory};

/// Version of this structure.
pub const SCHEMA: &str = "squall-info/1";

/// Statistics of captures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Info {
    /// `squall-info/1`.
    pub schema: String,
    /// The command line, or `python`.
    pub command: String,
    /// Version of the program that read the captures.
    pub squall_version: String,
    /// Filter expression that selected the packets.
    pub filter: Option<String>,
    pub files: Vec<FileInfo>,
    /// Statistics of all files together, if there are several.
    pub total: Option<Traffic>,
    pub notes: Vec<String>,
    /// Time that reading took.
    pub elapsed_s: f64,
    /// CPU time that reading took.
    pub cpu: Cpu,
    pub memory: Memory,
}

/// One file and its statistics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileInfo {
    /// `-` is the standard input.
    pub path: String,
    /// `null` for a pipe.
    pub size_octets: Option<u64>,
    /// Octets of the file, or of its decompressed content; for the text output only.
    #[serde(skip)]
    pub read_octets: u64,
    /// `pcap`, `pcapng`.
    pub format: Option<String>,
    /// `gzip`, `zstd` ...; `null` for a file that is not compressed.
    pub compression: Option<String>,
    pub interfaces: Vec<InterfaceInfo>,
    /// Error that ended reading before the end of the file. All packets before it are counted.
    /// `null` if the file was read to its end.
    pub fault: Option<FileFault>,
    /// Whether the user stopped reading.
    pub stopped: bool,
    /// SHA-256 of the file in hexadecimal; only on request.
    pub sha256: Option<String>,
    pub traffic: Traffic,
}

/// An interface of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceInfo {
    pub name: Option<String>,
    pub link_type: String,
    /// Number in tcpdump.org's list of link types.
    pub link_type_number: u16,
    /// Resolution of the timestamps: `microseconds`, `nanoseconds` ...
    pub resolution: String,
    /// Snap length; 0 is no limit.
    pub snaplen: u32,
    /// Packets in the file, including those that the filter excluded.
    pub packets: u64,
    /// Counters of the capturing program (interface statistics in pcapng).
    pub received: Option<u64>,
    pub dropped_by_interface: Option<u64>,
    pub dropped_by_system: Option<u64>,
}

/// An error that ended reading of a file before its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileFault {
    /// Offset of the error from the start of the file.
    pub offset: u64,
    pub text: String,
}

/// Statistics of packets. Octets are on the wire, without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    pub packets: u64,
    pub octets: u64,
    /// Captured octets.
    pub octets_captured: u64,
    /// Packets that were not captured completely.
    pub cut_packets: u64,
    /// Times of the earliest and the latest packet, nanoseconds since 1970 and RFC 3339.
    pub first_ns: Option<u64>,
    pub last_ns: Option<u64>,
    pub first: Option<String>,
    pub last: Option<String>,
    /// Duration. With several files, the time that at least one of them covers.
    pub duration_s: f64,
    /// Mean rate over the duration; 0 if there is no duration.
    pub mean_pps: f64,
    /// Mean layer-2 rate, without FCS.
    pub mean_bps: f64,
    /// Packets in the busiest second; seconds count from the first packet.
    pub peak_second_packets: u64,
    pub peak_second_octets: u64,
    pub order: Order,
    pub lengths: Lengths,
    /// Gaps from each packet to the next.
    pub gap_ns: Option<Distribution>,
    pub protocols: Vec<ProtocolShare>,
    pub tcp_ports: Vec<PortShare>,
    pub udp_ports: Vec<PortShare>,
    pub hosts: Vec<HostShare>,
    pub flows: Flows,
    /// Fragments of datagrams; fragments after the first belong to no flow.
    pub fragments: u64,
    /// Packets with contradictory headers or that end within a header.
    pub malformed_packets: u64,
    pub cut_header_packets: u64,
    /// Results of checksum checks by protocol; only on request.
    pub checksums: Option<BTreeMap<String, ChecksumCount>>,
    /// Packets identical to one shortly before; only on request.
    pub duplicates: Option<u64>,
    pub series: TrafficSeries,
}

/// Order of the timestamps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    /// Whether no packet is earlier than the previous one.
    pub strict: bool,
    pub backward_packets: u64,
    pub largest_backward_ns: u64,
    /// Packets without a timestamp.
    pub untimed_packets: u64,
}

/// Lengths of packets: octets on the wire, without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lengths {
    pub min: u32,
    pub mean: f64,
    pub stddev: f64,
    pub p50: u32,
    pub p90: u32,
    pub p99: u32,
    pub max: u32,
    pub bins: Vec<LengthBin>,
    /// `[length, packets]`, ascending, none empty.
    pub counts: Vec<(u32, u64)>,
}

/// Packets within a range of lengths. Both limits are inclusive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LengthBin {
    /// Shortest and longest length; the last bin has no longest length.
    pub from: u32,
    pub to: Option<u32>,
    pub packets: u64,
    pub octets: u64,
}

/// Share of one protocol in all packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProtocolShare {
    /// `network` (shares of all packets), `transport` (shares of all IP packets), or `tag` (VLAN,
    /// MPLS).
    pub layer: String,
    /// Name of the protocol.
    pub name: String,
    pub packets: u64,
    pub octets: u64,
    /// Share of all packets and octets, 0 to 1.
    pub packet_share: f64,
    pub octet_share: f64,
}

/// Packets from or to a TCP or UDP port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortShare {
    pub port: u16,
    pub packets: u64,
    pub octets: u64,
}

/// Packets from and to an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostShare {
    pub address: String,
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
}

/// Flows of IP packets. A flow is one direction: addresses, protocol and ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flows {
    /// Number of distinct flows.
    pub unique: u64,
    /// Number of conversations: both directions count as one.
    pub conversations: u64,
    /// Flows that started. A flow that starts again after it expired counts again, as in tcpreplay.
    pub begun: u64,
    /// Flows that were idle for longer than the expiry time before they started again.
    pub expired: u64,
    /// Flows that had not expired at the end; `null` if flows do not expire.
    pub active: Option<u64>,
    /// Flows that started per second, over the duration.
    pub per_second: f64,
    /// Idle time in seconds after which a flow expires, if requested.
    pub expiry_s: Option<f64>,
    pub flow_packets: u64,
    pub non_flow_packets: u64,
    /// Maximum number of tracked flows, and number of packets in flows beyond it. These flows are
    /// in no list of this section.
    pub limit: u64,
    pub overflow_packets: u64,
    /// Flows with the most octets.
    pub top: Vec<FlowRow>,
    pub packets_per_flow: Option<Distribution>,
    pub octets_per_flow: Option<Distribution>,
    pub duration_ns: Option<Distribution>,
}

/// A flow (one direction).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowRow {
    /// `10.0.0.1:53 > 10.0.0.2:5353 UDP`
    pub flow: String,
    pub packets: u64,
    pub octets: u64,
    /// Seconds since the first packet of the capture.
    pub start_s: f64,
    /// Time from the first packet to the last one.
    pub duration_s: f64,
}

/// Numbers of correct and incorrect checksums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChecksumCount {
    pub good: u64,
    pub bad: u64,
}

/// Traffic over time, in intervals of equal width from the first packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficSeries {
    pub width_s: f64,
    pub packets: Vec<u64>,
    pub octets: Vec<u64>,
    pub new_flows: Vec<u64>,
}

impl Info {
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("figures are plain JSON")
    }

    /// Whether every file was read to its end.
    pub fn is_complete(&self) -> bool {
        self.files.iter().all(|file| file.fault.is_none() && !file.stopped)
    }

    /// The total over all files, or the statistics of the only file.
    pub fn traffic(&self) -> Option<&Traffic> {
        self.total.as_ref().or(self.files.first().map(|file| &file.traffic))
    }
}

/// The JSON schema of [`Info`], checked in as `schemas/info.schema.json`.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Info);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `BLESS=1` rewrites the schema file.
    #[test]
    fn the_schema_that_is_checked_in_is_the_one_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/info.schema.json");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap();
        assert!(
            checked_in == schema(),
            "{path} lags behind info.rs: BLESS=1 cargo test -p squall-report schema"
        );
    }
}
