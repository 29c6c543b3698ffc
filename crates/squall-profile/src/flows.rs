//! Flows as values: who speaks with whom, what, and how often. Programs, messages and addresses
//! stay text here, with their places: whoever compiles them knows what they mean.

use serde_json::{Map, Value as Json, json};
use squall_units::Nanos;

use crate::{
    Arrival, At, Begin, Flows, Pool, Template,
    emit::{Emit, duration, options_table, table, texts},
    stage,
};

/// Text, and where it stands.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub text: String,
    pub at: At,
}

/// Where it stands does not matter.
impl PartialEq for Said {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl From<&str> for Said {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), at: At::default() }
    }
}

/// Which address and port the next flow has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Sequential,
    Random,
    Hash,
}

impl Arrival {
    /// Flows a second, users, or the weight.
    pub fn amount(&self) -> f64 {
        match *self {
            Self::Cps { cps, .. } => cps,
            Self::Users { users, .. } => users.into(),
            Self::Weight { weight, .. } => weight.into(),
            Self::Called | Self::None => 0.0,
        }
    }
}

/// Which record the next flow has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataOrder {
    /// One after the other, and the first again after the last.
    #[default]
    Circular,
    /// One after the other; no flow begins after the last.
    Once,
    /// Drawn for each flow.
    Random,
}

/// Which ends of a template's flows are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Play {
    /// Those that [`Flows`] has a port for.
    #[default]
    Both,
    /// Somebody else's servers answer.
    Clients,
    /// Somebody else's clients come.
    Servers,
}

/// What is said.
#[derive(Clone, Debug, PartialEq)]
pub enum Says {
    /// An application that is built in, and its options; one that is a list has several entries.
    App { app: Said, options: Vec<(String, Said)> },
    /// Instructions of both sides; a side that somebody else plays may have none. Messages by name.
    Programs { client: Vec<Said>, server: Vec<Said>, messages: Vec<(String, Said)> },
    /// The conversation of this number (from 1) in a capture.
    Capture { path: Said, number: u64, delays: Delays },
}

impl Default for Says {
    fn default() -> Self {
        Self::App { app: Said::default(), options: Vec::new() }
    }
}

/// What becomes of the delays of a conversation that was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Delays {
    #[default]
    Keep,
    Drop,
    /// Multiplied by this.
    Scale(f64),
}

impl Default for Begin {
    fn default() -> Self {
        Self::Captured(1.0)
    }
}

/// What becomes of conversations of which the capture lacks something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Incomplete {
    /// They are not played, and told.
    #[default]
    Skip,
    /// What is before the first hole is played.
    Cut,
    /// Zeros stand for what is missing.
    Zeros,
}

/// What a template's flows are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Tcp,
    Udp,
}

/// How starts of flows, or think times, spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    #[default]
    Constant,
    /// Exponential.
    Poisson,
}

/// Linearly from nothing, steady, linearly to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ramp {
    pub up: Nanos,
    pub hold: Option<Nanos>,
    pub down: Nanos,
}

/// How TCP behaves; what is not given stays as it is by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tcp {
    /// Names and values, of both sides.
    pub settings: Vec<(String, Said)>,
}

impl Tcp {
    pub fn has(&self, setting: &str) -> bool {
        self.settings.iter().any(|(name, _)| name == setting)
    }
}

impl Flows {
    /// Those that clients or servers stand on.
    pub fn ports(&self) -> Vec<usize> {
        self.clients.into_iter().chain(self.servers).collect()
    }

    /// As the schema describes them; `port` names ports.
    pub(crate) fn to_entries<'a>(
        &self,
        port: impl Fn(usize) -> Option<&'a str>,
    ) -> Map<String, Json> {
        let name = |of: Option<usize>| of.and_then(&port).map(|name| json!(name));
        let time = |time: Nanos| (time != Nanos::ZERO).then(|| duration(time));
        let shared = self.written(|key| match key {
            "clients" => name(self.clients),
            "servers" => name(self.servers),
            "ramp_up" => time(self.ramp.up),
            "hold" => self.ramp.hold.map(duration),
            "ramp_down" => time(self.ramp.down),
            key => self.target.and_then(|target| target.key(key)),
        });
        let mut all = Map::from_iter([("flows".to_owned(), shared)]);
        if self.replay.is_none() {
            let pools = self.pools.iter().map(|pool| pool.written(|_| None)).collect();
            let templates = self.templates.iter().map(|one| one.to_value(&self.pools)).collect();
            all.insert("pool".into(), pools);
            all.insert("template".into(), templates);
        }
        all
    }
}

impl Emit for Delays {
    fn emit(&self) -> Option<Json> {
        Some(match self {
            Self::Keep => json!("keep"),
            Self::Drop => json!("drop"),
            Self::Scale(factor) => json!(factor),
        })
    }
}

impl Emit for Tcp {
    fn emit(&self) -> Option<Json> {
        table(&self.settings)
    }
}

impl Template {
    /// Whether its clients are played, in a profile whose `flows` have ports for these ends.
    pub fn plays_clients(&self, flows: &Flows) -> bool {
        flows.clients.is_some() && self.play != Play::Servers
    }

    pub fn plays_servers(&self, flows: &Flows) -> bool {
        flows.servers.is_some() && self.play != Play::Clients
    }

    fn to_value(&self, pools: &[Pool]) -> Json {
        let pool = |number: usize| pools.get(number).map(|pool| json!(pool.name));
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "clients" => pool(self.clients),
            "servers" => pool(self.servers),
            "stages" => stage::to_value(&self.stages, |to| json!(to)),
            key => self.says.key(key).or_else(|| self.arrival.key(key)),
        })
    }
}

impl Says {
    /// A key of its own as it is written.
    fn key(&self, key: &str) -> Option<Json> {
        match (self, key) {
            (Self::App { app, .. }, "app") => app.emit(),
            (Self::App { options, .. }, "options") => options_table(options),
            // One of them is there, or there would be nothing to say.
            (Self::Programs { client, .. }, "client") => {
                Some(client.iter().map(|said| json!(said.text)).collect())
            }
            (Self::Programs { server, .. }, "server") => texts(server),
            (Self::Programs { messages, .. }, "messages") => table(messages),
            (Self::Capture { path, number, .. }, "capture") => {
                Some(json!(format!("{}#{number}", path.text)))
            }
            (Self::Capture { delays, .. }, "delays") if *delays != Delays::Keep => delays.emit(),
            _ => None,
        }
    }
}
