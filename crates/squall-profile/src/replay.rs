//! Captures as values: which files, by which ports, how fast. Speeds, filters and edits stay text
//! here, with their places: whoever compiles them knows what they mean.

use serde_json::{Value as Json, json};

use crate::{
    Replay,
    emit::{count, options_table, texts},
};

/// In which words a speed is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedOf {
    /// So many times as fast as captured.
    Captured,
    /// A rate, or `max`.
    Rate,
    /// Mb/s of frames without FCS.
    Mbps,
    /// From one rate to another.
    Ramp,
}

/// By what two ports' packets are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitOf {
    /// What hosts do in the capture.
    Auto,
    /// A file of `squall prep` or tcpprep.
    Cache,
    Cidr,
    Regex,
    Mac,
    /// Ports of services.
    Port,
    /// Of two captures that are merged, each leaves by a port of its own.
    File,
}

/// What is done with a frame that is longer than its port takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// It does not leave, and is counted.
    #[default]
    Skip,
    /// Its end is cut off.
    Truncate,
    /// An IP packet leaves as fragments.
    Fragment,
}

impl Replay {
    /// Whether it comes to an end by itself.
    pub fn ends(&self) -> bool {
        !self.held && (self.loops > 0 || self.limit.is_some() || self.duration.is_some())
    }

    /// Whether nothing but the speed differs, and the places in the profile.
    pub fn is_at_another_speed(&self, other: &Self) -> bool {
        let rest = |replay: &Self| {
            let value = Self { speed: None, ..replay.clone() }.to_value(|_| None);
            (replay.port, replay.port2, value)
        };
        rest(self) == rest(other)
    }

    /// As the schema describes it; `port` names ports.
    pub(crate) fn to_value<'a>(&self, port: impl Fn(usize) -> Option<&'a str>) -> Json {
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "files" => texts(&self.files),
            "port" => port(self.port).map(|name| json!(name)),
            "port2" => self.port2.and_then(&port).map(|name| json!(name)),
            "multiplier" | "rate" | "mbps" | "ramp" => {
                let speed = self.speed.as_ref().filter(|(of, _)| of.word() == key);
                speed.map(|(_, said)| json!(said.text))
            }
            "split" => self.split.as_ref().map(|(of, said)| json!({ of.word(): said.text })),
            "unique_ip" => self.unique.map(count),
            "edit" => options_table(&self.edit),
            _ => None,
        })
    }
}
