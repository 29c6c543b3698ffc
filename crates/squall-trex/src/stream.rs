//! A stream as sent by TRex's clients.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::Problem;

/// Minimum length of an Ethernet frame, excluding the FCS. Shorter packets are padded with zeros.
pub(crate) const SHORTEST: usize = 60;
/// Maximum frame length, excluding the FCS.
pub(crate) const LONGEST: usize = 9_238;

/// The `rule_type` of streams in tagged packet groups.
const TAGGED: &str = "tpg";

/// The flag of a stream that sends nothing.
pub(crate) const NULL: u32 = 8;

/// A stream: packets, their rate and number, and the fields that change from packet to packet.
#[derive(Clone, Debug, Deserialize)]
pub struct Stream {
    #[serde(default)]
    pub flags: u32,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default = "yes")]
    pub self_start: bool,
    #[serde(default)]
    pub start_paused: bool,
    /// Delay before the first packet, microseconds.
    #[serde(default)]
    pub isg: f64,
    /// Maximum number of runs; 0: unlimited.
    #[serde(default)]
    pub action_count: u64,
    /// Number of the following stream; negative: none.
    #[serde(default = "none")]
    pub next_stream_id: i64,
    #[serde(default)]
    pub random_seed: u32,
    pub mode: Mode,
    pub packet: Packet,
    pub vm: Vm,
    #[serde(default)]
    pub flow_stats: FlowStats,
    #[serde(default, deserialize_with = "label")]
    pub name: Option<String>,
    /// Name of the following stream, before streams are numbered.
    #[serde(default, deserialize_with = "label")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Mode {
    #[serde(flatten)]
    pub kind: Kind,
    pub rate: Rate,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Kind {
    Continuous,
    SingleBurst {
        total_pkts: u64,
    },
    MultiBurst {
        pkts_per_burst: u64,
        /// Microseconds from the last packet of a burst to the first of the next.
        ibg: f64,
        /// Number of bursts; 0: unlimited.
        count: u64,
    },
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Rate {
    #[serde(rename = "type")]
    pub unit: Unit,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Unit {
    #[serde(rename = "pps")]
    Pps,
    #[serde(rename = "bps_L1")]
    BpsL1,
    #[serde(rename = "bps_L2")]
    BpsL2,
    #[serde(rename = "percentage")]
    Percent,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Packet {
    /// Octets of the packet without FCS, at least [`SHORTEST`].
    #[serde(deserialize_with = "octets")]
    pub binary: Vec<u8>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Vm {
    #[serde(default)]
    pub instructions: Vec<Instruction>,
    /// Number of packets after which the packets repeat; 0: never.
    #[serde(default)]
    pub cache: u16,
}

/// An instruction of the field engine. Instructions run in order for each packet.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Instruction {
    FlowVar {
        name: String,
        size: u8,
        op: VarOp,
        #[serde(default)]
        init_value: u64,
        #[serde(default)]
        min_value: u64,
        #[serde(default)]
        max_value: u64,
        value_list: Option<Vec<u64>>,
        step: u64,
        next_var: Option<String>,
    },
    FlowVarRandLimit {
        name: String,
        size: u8,
        seed: u64,
        limit: u64,
        min_value: u64,
        max_value: u64,
        next_var: Option<String>,
    },
    TupleFlowVar {
        name: String,
        ip_min: u32,
        ip_max: u32,
        port_min: u16,
        port_max: u16,
        #[serde(default)]
        limit_flows: u64,
        #[serde(default)]
        flags: u32,
    },
    WriteFlowVar {
        name: String,
        pkt_offset: usize,
        #[serde(default)]
        add_value: i64,
        #[serde(default = "yes")]
        is_big_endian: bool,
    },
    WriteMaskFlowVar {
        name: String,
        pkt_offset: usize,
        pkt_cast_size: u8,
        mask: u32,
        #[serde(default)]
        shift: i8,
        #[serde(default)]
        add_value: i64,
        #[serde(default = "yes")]
        is_big_endian: bool,
    },
    TrimPktSize {
        name: String,
    },
    FixChecksumIpv4 {
        pkt_offset: usize,
    },
    FixChecksumHw {
        l2_len: usize,
        l3_len: usize,
        /// Protocol after the IP header: 11 is UDP, 13 is TCP, 17 is IP alone.
        l4_type: u8,
    },
    FixChecksumIcmpv6 {
        l2_len: usize,
        l3_len: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VarOp {
    Inc,
    Dec,
    Random,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct FlowStats {
    #[serde(default)]
    pub enabled: bool,
    /// The packet group.
    #[serde(default)]
    pub stream_id: u32,
    #[serde(default)]
    pub rule_type: String,
}

/// The source of the MAC addresses in a stream's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mac {
    Port,
    Packet,
}

fn yes() -> bool {
    true
}

fn none() -> i64 {
    -1
}

/// Reads a name, which may be given as a number.
fn label<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

fn octets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    let mut octets = STANDARD
        .decode(text.trim())
        .map_err(|error| serde::de::Error::custom(format!("binary is no base64: {error}")))?;
    if octets.is_empty() || octets.len() > LONGEST {
        let text = format!("a packet of {} octets: expected 1 to {LONGEST}", octets.len());
        return Err(serde::de::Error::custom(text));
    }
    if octets.len() < SHORTEST {
        octets.resize(SHORTEST, 0);
    }
    Ok(octets)
}

impl Stream {
    /// # Errors
    /// A field is missing or has the wrong type.
    pub fn read(value: &Value) -> Result<Self, Problem> {
        let stream = Self::deserialize(value).map_err(|error| Problem::new(error.to_string()))?;
        let Rate { value: rate, .. } = stream.mode.rate;
        if !(rate.is_finite() && rate > 0.0) {
            return Err(Problem::new(format!("rate = {rate}: expected more than 0")));
        }
        let micros =
            |what: &str, value: f64| match value.is_finite() && (0.0..1e13).contains(&value) {
                true => Ok(()),
                false => Err(Problem::new(format!("{what} = {value}: expected 0 to 10^13 us"))),
            };
        micros("isg", stream.isg)?;
        match stream.mode.kind {
            Kind::SingleBurst { total_pkts: 0 } => Err(Problem::new("total_pkts cannot be 0")),
            Kind::MultiBurst { pkts_per_burst: 0, .. } => {
                Err(Problem::new("pkts_per_burst cannot be 0"))
            }
            Kind::MultiBurst { ibg, .. } => micros("ibg", ibg),
            _ => Ok(()),
        }?;
        Ok(stream)
    }

    pub fn source_mac(&self) -> Mac {
        if self.flags & 1 == 0 { Mac::Port } else { Mac::Packet }
    }

    pub fn destination_mac(&self) -> Mac {
        if (self.flags >> 1) & 3 == 1 { Mac::Packet } else { Mac::Port }
    }

    /// Whether the stream sends nothing and only delays its followers.
    pub fn is_null(&self) -> bool {
        self.flags & NULL != 0
    }

    /// Total number of packets; `None`: unlimited.
    pub fn packets(&self) -> Option<u64> {
        match self.mode.kind {
            Kind::Continuous | Kind::MultiBurst { count: 0, .. } => None,
            Kind::SingleBurst { total_pkts } => Some(total_pkts),
            Kind::MultiBurst { pkts_per_burst, count, .. } => {
                Some(pkts_per_burst.saturating_mul(count))
            }
        }
    }

    pub fn has_latency(&self) -> bool {
        self.flow_stats.enabled && self.flow_stats.rule_type == "latency"
    }

    /// The packet group that counts the packets, if any.
    pub fn group(&self) -> Option<u32> {
        (self.flow_stats.enabled && self.flow_stats.rule_type != TAGGED)
            .then_some(self.flow_stats.stream_id)
    }

    /// The tagged packet group of the packets, if any.
    pub fn tagged_group(&self) -> Option<u32> {
        (self.flow_stats.enabled && self.flow_stats.rule_type == TAGGED)
            .then_some(self.flow_stats.stream_id)
    }
}
