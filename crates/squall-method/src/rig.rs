//! The test setup of a method: streams between ports, and the highest rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trial::{Lane, Trial};

/// Octets that a frame takes on the wire besides itself: preamble (7), start frame delimiter (1)
/// and interframe gap (12) of IEEE 802.3.
const L1_OVERHEAD: f64 = 20.0;

/// The streams of a profile that a method uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rig {
    /// All ports, in the order of the profile.
    pub ports: Vec<String>,
    pub lanes: Vec<RigLane>,
    /// The ports of the clients and of the servers of flows, if the profile has flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<String>,
    pub most: MaxLoad,
    /// Speed of the slowest link on layer 1, bits per second; `None`: unknown.
    #[serde(default)]
    pub link_bps: Option<f64>,
}

/// One stream of the profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RigLane {
    pub stream: String,
    /// The port that sends it.
    pub port: String,
    /// Fraction of the port's rate, above 0, up to 1. The shares of a port add up to 1.
    pub share: f64,
    /// Whether its frames are IPv6.
    #[serde(default)]
    pub ipv6: bool,
    /// Octets by which frames exceed the frame size of the trial.
    #[serde(default)]
    pub longer: u32,
}

/// The rate of a port at a load of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaxLoad {
    /// Bits per second on layer 1, with preamble and gap.
    BpsL1(f64),
    /// Frames per second, at any frame size.
    Fps(f64),
}

impl Rig {
    /// One stream on a link of `bps_l1` bits per second.
    pub fn one_stream(stream: &str, bps_l1: f64) -> Self {
        let lane =
            RigLane { stream: stream.into(), port: "A".into(), share: 1.0, ..RigLane::default() };
        Self {
            ports: vec!["A".into()],
            lanes: vec![lane],
            clients: None,
            servers: None,
            most: MaxLoad::BpsL1(bps_l1),
            link_bps: Some(bps_l1),
        }
    }

    /// Ports that send.
    pub fn sending_ports(&self) -> usize {
        let mut ports: Vec<_> = self.lanes.iter().map(|lane| &lane.port).collect();
        ports.sort();
        ports.dedup();
        ports.len()
    }

    /// Frames per second of `size` octets with FCS that one port sends at a load of 1.
    pub fn port_fps(&self, size: u32) -> f64 {
        match self.most {
            MaxLoad::BpsL1(bps) => {
                // All streams of a port have one frame rate, which the longest frames limit.
                let longer = self.lanes.iter().map(|lane| lane.longer).max().unwrap_or(0);
                bps / (8.0 * (f64::from(size + longer) + L1_OVERHEAD))
            }
            MaxLoad::Fps(fps) => fps,
        }
    }

    /// Back-to-back frames per second on all links together, the theoretical maximum of the medium
    /// (RFC 2544 §26.1), for frames of `size` octets with FCS; `None`: the link speed is unknown.
    pub fn medium_fps(&self, size: u32) -> Option<f64> {
        let on_link = |most: MaxLoad| Self { most, ..self.clone() }.total_fps(size);
        match (self.link_bps, self.most) {
            (Some(bps), _) => Some(on_link(MaxLoad::BpsL1(bps))),
            (None, MaxLoad::BpsL1(_)) => Some(self.total_fps(size)),
            (None, MaxLoad::Fps(_)) => None,
        }
    }

    /// Frames per second of all ports together, at a load of 1.
    pub fn total_fps(&self, size: u32) -> f64 {
        self.port_fps(size) * self.lanes.iter().map(|lane| lane.share).sum::<f64>()
    }

    /// All streams at `load`, a fraction of the highest rate.
    pub fn lanes(&self, size: u32, load: f64) -> Vec<Lane> {
        let lane = |lane: &RigLane| Lane {
            name: lane.stream.clone(),
            stream: lane.stream.clone(),
            frame_size: Some(size + lane.longer),
            rate_fps: self.port_fps(size) * load * lane.share,
            ..Lane::default()
        };
        self.lanes.iter().map(lane).collect()
    }

    pub fn trial(&self, label: String, size: u32, load: f64, duration_s: f64) -> Trial {
        Trial { label, lanes: self.lanes(size, load), duration_s, ..Trial::default() }
    }
}
