//! Attacks as values: which rules or which template, how often, from whom. Rules, addresses and
//! options stay text here, with their places: whoever compiles them knows what they mean.

use serde_json::{Value as Json, json};
use squall_units::Nanos;

use crate::{
    Attack, Said,
    emit::{Emit, table, texts},
};

#[derive(Clone, Debug, PartialEq)]
pub enum AttackOf {
    Rules(AttackRules),
    /// A scan, a flood and the like, by its name.
    Template {
        name: Said,
        options: Vec<(String, Said)>,
    },
}

impl Default for AttackOf {
    fn default() -> Self {
        AttackOf::Rules(AttackRules::default())
    }
}

/// Which rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttackRules {
    /// Files, and folders of them.
    pub files: Vec<Said>,
    /// A suricata.yaml or snort.conf, whose variables count.
    pub config: Option<Said>,
    pub variables: Vec<(String, Said)>,
    /// `1234`, `1000-2000`
    pub sids: Vec<Said>,
    pub classtypes: Vec<Said>,
    /// An expression.
    pub msg: Option<Said>,
    /// `None`: rules of all engines are read, and what they match is what Suricata 8 would.
    pub engine: Option<IdsEngine>,
}

/// The engine that loads the rules, and whose alerts attacks are made to raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdsEngine {
    Suricata7,
    Suricata8,
    Snort2,
    Snort3,
}

/// How often an attack begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttackPace {
    PerSecond(f64),
    /// Of the octets that leave, a fraction of 1; of a background that is a capture.
    Share(f64),
}

impl Attack {
    /// From this instant of its own schedule on no attack begins.
    pub fn end(&self) -> Nanos {
        self.duration.map_or(Nanos(u64::MAX), |lasts| Nanos(self.start.0.saturating_add(lasts.0)))
    }
}

impl AttackPace {
    /// Unless something else is said; of templates, whose own gaps count then.
    pub const DEFAULT: Self = Self::PerSecond(100.0);
}

impl Default for AttackPace {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Whether twins that are one octet off are played: no alert is owed for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NearMiss {
    #[default]
    No,
    Also,
    Only,
}

impl Attack {
    /// As the schema describes it; `port` names ports.
    pub(crate) fn to_value<'a>(&self, port: impl Fn(usize) -> Option<&'a str>) -> Json {
        let pace = match self.pace {
            AttackPace::PerSecond(rate) => ("rate", json!(rate)),
            AttackPace::Share(share) => ("share", json!(format!("{} %", share * 100.0))),
        };
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "port" => port(self.port).map(|name| json!(name)),
            "port2" => self.port2.and_then(&port).map(|name| json!(name)),
            "live" => (self.live != self.port2.is_some()).then(|| json!(self.live)),
            "rate" | "share" => (pace.0 == key).then(|| pace.1.clone()),
            "family" => self.family.map(|family| json!(family)),
            key => self.what.key(key),
        })
    }
}

impl AttackOf {
    /// A key of its own as it is written.
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
