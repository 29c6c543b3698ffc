//! Attacks as values: which rules or which template, how often, from whom. Rules, addresses and
//! options stay text here, with their places: whoever compiles them knows what they mean.

use serde_json::{Map, Value as Json, json};
use squall_units::Nanos;

use crate::{
    At, Network, Said,
    emit::{count, duration, table, texts},
};

/// Attacks that begin one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attack {
    pub name: String,
    pub what: AttackOf,
    /// Index into [`crate::Profile::ports`]: clients stand there; if there is no other, servers as
    /// well.
    pub port: usize,
    /// Servers.
    pub port2: Option<usize>,
    /// Conversations are spoken by TCP and UDP of our own where they can be; otherwise all frames
    /// leave as they were made.
    pub live: bool,
    pub pace: AttackPace,
    /// When the first begins.
    pub start: Nanos,
    /// None begins so long after the start.
    pub duration: Option<Nanos>,
    /// What has to end before: the start is counted from that.
    pub after: Option<Said>,
    /// All of them so many times.
    pub repeat: u64,
    /// Not in the order of the rules.
    pub shuffle: bool,
    /// Of each rule so many that differ.
    pub samples: u32,
    /// One of each rule for each branch of its expressions.
    pub every_branch: bool,
    pub near_miss: NearMiss,
    /// What makes them harder to see: `segments=8`.
    pub evasion: Vec<Said>,
    /// Addresses that stand for hosts inside and outside of the protected network.
    pub inside: Vec<Said>,
    pub outside: Vec<Said>,
    /// 4 or 6; none: 4, where a rule leaves it open.
    pub family: Option<u8>,
    /// `vlan 7`, `gre FROM TO`, from outside in.
    pub wraps: Vec<Said>,
    /// Of a live run: what stands around the packets of both sides.
    pub client_network: Network,
    pub server_network: Network,
    /// Between frames of an attack.
    pub gap: Option<Nanos>,
    /// A capture of what is not an attack, mixed in, over and over until the attacks end.
    pub background: Option<Said>,
    pub at: At,
}

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

impl IdsEngine {
    pub const ALL: [(&'static str, IdsEngine); 4] = [
        ("suricata7", IdsEngine::Suricata7),
        ("suricata8", IdsEngine::Suricata8),
        ("snort2", IdsEngine::Snort2),
        ("snort3", IdsEngine::Snort3),
    ];

    /// As profiles name it.
    pub fn name(self) -> &'static str {
        match self {
            IdsEngine::Suricata7 => "suricata7",
            IdsEngine::Suricata8 => "suricata8",
            IdsEngine::Snort2 => "snort2",
            IdsEngine::Snort3 => "snort3",
        }
    }
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
        let mut entries = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            entries.extend(value.map(|value| (key.to_owned(), value)))
        };
        let text = |said: &Option<Said>| said.as_ref().map(|said| json!(said.text));
        set("name", Some(json!(self.name)));
        match &self.what {
            AttackOf::Rules(rules) => {
                set("rules", texts(&rules.files));
                set("config", text(&rules.config));
                set("variables", table(&rules.variables));
                set("sid", texts(&rules.sids));
                set("classtype", texts(&rules.classtypes));
                set("msg", text(&rules.msg));
                set("engine", rules.engine.map(|engine| json!(engine.name())));
            }
            AttackOf::Template { name, options } => {
                set("template", Some(json!(name.text)));
                set("options", table(options));
            }
        }
        set("port", port(self.port).map(|name| json!(name)));
        set("port2", self.port2.and_then(port).map(|name| json!(name)));
        set("live", (self.live != self.port2.is_some()).then(|| json!(self.live)));
        match self.pace {
            AttackPace::PerSecond(rate) => set("rate", Some(json!(rate))),
            AttackPace::Share(share) => set("share", Some(json!(format!("{} %", share * 100.0)))),
        }
        set("start", (self.start != Nanos::ZERO).then(|| duration(self.start)));
        set("duration", self.duration.map(duration));
        set("after", self.after.as_ref().map(|after| json!(after.text)));
        set("repeat", (self.repeat != 1).then(|| count(self.repeat)));
        set("shuffle", self.shuffle.then_some(json!(true)));
        set("samples", (self.samples != 1).then(|| json!(self.samples)));
        set("every_branch", self.every_branch.then_some(json!(true)));
        set(
            "near_miss",
            match self.near_miss {
                NearMiss::No => None,
                NearMiss::Also => Some(json!("also")),
                NearMiss::Only => Some(json!("only")),
            },
        );
        set("evasion", texts(&self.evasion));
        set("inside", texts(&self.inside));
        set("outside", texts(&self.outside));
        set("family", self.family.map(|family| json!(family)));
        set("wrap", texts(&self.wraps));
        set("client_network", self.client_network.to_value());
        set("server_network", self.server_network.to_value());
        set("gap", self.gap.map(duration));
        set("background", text(&self.background));
        Json::Object(entries)
    }
}
