//! Attacks as values: rules or a template, rate, hosts. Rules, addresses and options stay text with
//! their positions, because the code that compiles them defines their grammar.

use serde_json::{Value as Json, json};
use squall_units::Nanos;

use crate::{
    Attack, Located,
    emit::{Emit, table, texts},
};

#[derive(Clone, Debug, PartialEq)]
pub enum AttackOf {
    Rules(AttackRules),
    /// A scan, a flood or another template, by name.
    Template {
        name: Located,
        options: Vec<(String, Located)>,
    },
}

impl Default for AttackOf {
    fn default() -> Self {
        AttackOf::Rules(AttackRules::default())
    }
}

/// Selects rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttackRules {
    /// Rule files, and directories of rule files.
    pub files: Vec<Located>,
    /// A suricata.yaml or snort.conf that defines variables.
    pub config: Option<Located>,
    pub variables: Vec<(String, Located)>,
    /// `1234`, `1000-2000`
    pub sids: Vec<Located>,
    pub classtypes: Vec<Located>,
    /// A regular expression for the message.
    pub msg: Option<Located>,
    /// The engine. `None`: rules for all engines are read, and match as in Suricata 8.
    pub engine: Option<IdsEngine>,
}

/// The engine that loads the rules and is expected to raise alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdsEngine {
    Suricata7,
    Suricata8,
    Snort2,
    Snort3,
}

/// The rate of attacks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttackPace {
    PerSecond(f64),
    /// A fraction of the octets sent, with a capture as background traffic.
    Share(f64),
}

impl Attack {
    /// The end of the schedule. Exclusive: no attack begins at this time or later.
    pub fn end(&self) -> Nanos {
        self.duration.map_or(Nanos(u64::MAX), |lasts| Nanos(self.start.0.saturating_add(lasts.0)))
    }

    /// The default of `live`.
    fn is_live_by_default(&self) -> bool {
        self.port2.is_some() && self.clients.is_none() && self.servers.is_none()
    }
}

impl AttackPace {
    /// The default for rules. Templates have their own gaps.
    pub const DEFAULT: Self = Self::PerSecond(100.0);
}

impl Default for AttackPace {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Whether near misses are played: twins that differ by one octet and must not raise the alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NearMiss {
    #[default]
    No,
    Also,
    Only,
}

impl Attack {
    /// The JSON of the schema; `port` maps an index to a name.
    pub(crate) fn to_value<'a>(&self, port: impl Fn(usize) -> Option<&'a str>) -> Json {
        let pace = match self.pace {
            AttackPace::PerSecond(rate) => ("rate", json!(rate)),
            AttackPace::Share(share) => ("share", json!(format!("{} %", share * 100.0))),
        };
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "port" => port(self.port).map(|name| json!(name)),
            "port2" => self.port2.and_then(&port).map(|name| json!(name)),
            "live" => (self.live != self.is_live_by_default()).then(|| json!(self.live)),
            "rate" | "share" => (pace.0 == key).then(|| pace.1.clone()),
            "family" => self.family.map(|family| json!(family)),
            key => self.what.key(key),
        })
    }
}

impl AttackOf {
    /// The value of a key that the attack itself has.
    fn key(&self, key: &str) -> Option<Json> {
        match (self, key) {
            (Self::Rules(rules), "rules") => texts(&rules.files),
            (Self::Rules(rules), "config") => rules.config.emit(),
            (Self::Rules(rules), "variables") => table(&rules.variables),
            (Self::Rules(rules), "sid") => texts(&rules.sids),
            (Self::Rules(rules), "classtype") => texts(&rules.classtypes),
            (Self::Rules(rules), "msg") => rules.msg.emit(),
            (Self::Rules(rules), "engine") => rules.engine.emit(),
            (Self::Template { name, .. }, "template") => name.emit(),
            (Self::Template { options, .. }, "options") => table(options),
            _ => None,
        }
    }
}
