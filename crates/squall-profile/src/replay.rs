//! Captures as values: files, ports, speed. Speeds, filters and edits stay text with their
//! positions, because the code that compiles them defines their grammar.

use serde_json::{Value as Json, json};

use crate::{
    Replay,
    emit::{count, options_table, texts},
};

/// The unit of a speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedUnit {
    /// A multiple of the captured speed.
    Captured,
    /// A rate, or `max`.
    Rate,
    /// Mb/s of frames without FCS.
    Mbps,
    /// From one rate to another.
    Ramp,
}

/// How the packets of two ports are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitRule {
    /// By the behavior of hosts in the capture.
    Auto,
    /// By a file of `squall prep` or tcpprep.
    Cache,
    Cidr,
    Regex,
    Mac,
    /// By the TCP and UDP ports of services.
    Port,
    /// Two captures, each sent on its own port.
    File,
}

/// The action for frames that are longer than the port's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// Not sent, and counted.
    #[default]
    Skip,
    /// Truncated.
    Truncate,
    /// IP packets are fragmented.
    Fragment,
}

impl Replay {
    /// Whether the replay ends by itself, without being stopped.
    pub fn ends(&self) -> bool {
        !self.held && (self.loops > 0 || self.limit.is_some() || self.duration.is_some())
    }

    /// Whether the two differ in nothing but the speed and the positions in the profile.
    pub fn is_at_another_speed(&self, other: &Self) -> bool {
        let rest = |replay: &Self| {
            let value = Self { speed: None, ..replay.clone() }.to_value(|_| None);
            (replay.port, replay.port2, value)
        };
        rest(self) == rest(other)
    }

    /// The JSON of the schema; `port` maps an index to a name.
    pub(crate) fn to_value<'a>(&self, port: impl Fn(usize) -> Option<&'a str>) -> Json {
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "files" => texts(&self.files),
            "port" => port(self.port).map(|name| json!(name)),
            "port2" => self.port2.and_then(&port).map(|name| json!(name)),
            "multiplier" | "rate" | "mbps" | "ramp" => {
                let speed = self.speed.as_ref().filter(|(of, _)| of.word() == key);
                speed.map(|(_, located)| json!(located.text))
            }
            "split" => self.split.as_ref().map(|(of, located)| json!({ of.word(): located.text })),
            "unique_ip" => self.unique.map(count),
            "edit" => options_table(&self.edit),
            _ => None,
        })
    }
}
