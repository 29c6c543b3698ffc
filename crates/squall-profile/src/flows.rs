//! Flows as values: hosts, exchange, load. Programs, messages and addresses stay text with their
//! positions, because the code that compiles them defines their grammar.

use serde_json::{Map, Value as Json, json};
use squall_units::Nanos;

use crate::{
    Arrival, At, Begin, Flows, Network, Pool, PortPair, Template,
    emit::{Emit, duration, options_table, table, texts},
    stage,
};

/// A text and its position.
#[derive(Clone, Debug, Default)]
pub struct Located {
    pub text: String,
    pub at: At,
}

impl Located {
    /// The name of the group of hosts, if the text is `host:NAME`.
    pub fn host_group(&self) -> Option<&str> {
        self.text.strip_prefix("host:")
    }

    /// The name of the router, if the text is `learnt:NAME`.
    pub fn learnt(&self) -> Option<&str> {
        self.text.strip_prefix("learnt:")
    }

    /// The name of the router or of its group, `ROUTER/GROUP`, if the text is `routes:NAME` or
    /// `routes:NAME#HOST`; and the number of the host in each route, from 1.
    pub fn routes(&self) -> Option<(&str, u64)> {
        let name = self.text.strip_prefix("routes:")?;
        let numbered = name.rsplit_once('#').and_then(|(name, host)| {
            let host = host.parse().ok().filter(|host| *host > 0)?;
            Some((name, host))
        });
        Some(numbered.unwrap_or((name, 1)))
    }
}

/// Equality ignores the position.
impl PartialEq for Located {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl From<&str> for Located {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), at: At::default() }
    }
}

/// The order in which flows use addresses and ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Sequential,
    Random,
    Hash,
}

impl Arrival {
    /// The number of flows per second, the number of users, or the weight, depending on the kind of
    /// arrival.
    pub fn amount(&self) -> f64 {
        match *self {
            Self::Cps { cps, .. } => cps,
            Self::Users { users, .. } => users.into(),
            Self::Weight { weight, .. } => weight.into(),
            Self::Called | Self::None => 0.0,
        }
    }
}

/// The order in which flows use records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataOrder {
    /// In order, repeated.
    #[default]
    Circular,
    /// In order; no flow begins after the last record.
    Once,
    /// Drawn for each flow.
    Random,
}

/// The ends of a template's flows that Squall plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Play {
    /// The ends that [`Flows`] has a port for.
    #[default]
    Both,
    /// The servers are external.
    Clients,
    /// The clients are external.
    Servers,
}

/// The exchange of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowContent {
    /// A built-in application and its options; an option that is a list has several entries.
    App { app: Located, options: Vec<(String, Located)> },
    /// Instructions of both sides; an external side may have none. Messages by name.
    Programs { client: Vec<Located>, server: Vec<Located>, messages: Vec<(String, Located)> },
    /// The conversation with this number (from 1) in a capture.
    Capture { path: Located, number: u64, delays: Delays },
}

impl Default for FlowContent {
    fn default() -> Self {
        Self::App { app: Located::default(), options: Vec::new() }
    }
}

/// The treatment of a captured conversation's delays.
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

/// The treatment of conversations that are incomplete in the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Incomplete {
    /// Skipped and reported.
    #[default]
    Skip,
    /// Played up to the first gap.
    Cut,
    /// Gaps are filled with zeros.
    Zeros,
}

/// The transport of a template's flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Tcp,
    Udp,
}

/// The version of HTTP whose streams carry requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    #[default]
    Two,
    Three,
}

/// The end that a client of HTTP/3 changes when its connection migrates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrateTo {
    #[default]
    Port,
    /// The address, and the port.
    Address,
}

/// The version of the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    #[default]
    V2,
}

/// The distribution of flow starts or think times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    #[default]
    Constant,
    /// Exponential times.
    Poisson,
}

/// A linear rise from zero, a steady part, a linear fall to zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ramp {
    pub up: Nanos,
    pub hold: Option<Nanos>,
    pub down: Nanos,
}

/// Settings of TCP that differ from the defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tcp {
    /// Names and values for both sides.
    pub settings: Vec<(String, Located)>,
}

impl Tcp {
    pub fn has(&self, setting: &str) -> bool {
        self.settings.iter().any(|(name, _)| name == setting)
    }
}

impl Flows {
    /// The ports of clients and servers of all pairs.
    pub fn ports(&self) -> Vec<usize> {
        let further = self.pairs.iter().flat_map(|pair| [pair.clients, pair.servers]);
        [self.clients, self.servers].into_iter().chain(further).flatten().collect()
    }

    /// Pair `number` of ports, counted from 1: the ports of its clients and servers, and their
    /// networks. `None`: there is no such pair.
    pub fn pair(&self, number: u16) -> Option<[(Option<usize>, &Network); 2]> {
        match usize::from(number).checked_sub(2) {
            None => {
                Some([(self.clients, &self.client_network), (self.servers, &self.server_network)])
            }
            Some(further) => self.pairs.get(further).map(|pair| {
                [(pair.clients, &pair.client_network), (pair.servers, &pair.server_network)]
            }),
        }
    }

    /// The ports of the clients and servers of pair `number`, counted from 1.
    pub fn ends(&self, number: u16) -> (Option<usize>, Option<usize>) {
        let [clients, servers] = self.pair(number).map_or([None; 2], |pair| pair.map(|end| end.0));
        (clients, servers)
    }

    /// The JSON of the schema; `port` maps an index to a name.
    pub(crate) fn to_entries<'a>(
        &self,
        port: impl Fn(usize) -> Option<&'a str>,
    ) -> Map<String, Json> {
        let name = |of: Option<usize>| of.and_then(&port).map(|name| json!(name));
        let time = |time: Nanos| (time != Nanos::ZERO).then(|| duration(time));
        let shared = self.written(|key| match key {
            "clients" => name(self.clients),
            "servers" => name(self.servers),
            "pair" => (!self.pairs.is_empty()).then(|| {
                let pair = |pair: &PortPair| {
                    pair.written(|key| {
                        name(if key == "clients" { pair.clients } else { pair.servers })
                    })
                };
                self.pairs.iter().map(pair).collect()
            }),
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

impl Pool {
    /// The group of hosts that the clients or servers are: `host:NAME`.
    pub fn hosts(&self) -> Option<(&str, &Located)> {
        self.addresses.iter().find_map(|one| Some((one.host_group()?, one)))
    }
}

impl Template {
    /// Whether Squall plays the template's clients, in a profile whose `flows` has ports for these
    /// ends.
    pub fn plays_clients(&self, flows: &Flows) -> bool {
        flows.ends(self.pair).0.is_some() && self.play != Play::Servers
    }

    pub fn plays_servers(&self, flows: &Flows) -> bool {
        flows.ends(self.pair).1.is_some() && self.play != Play::Clients
    }

    fn to_value(&self, pools: &[Pool]) -> Json {
        let pool = |number: usize| pools.get(number).map(|pool| json!(pool.name));
        self.written(|key| match key {
            "name" => Some(json!(self.name)),
            "clients" => pool(self.clients),
            "servers" => pool(self.servers),
            "stages" => stage::to_value(&self.stages, |to| json!(to)),
            key => self.content.key(key).or_else(|| self.arrival.key(key)),
        })
    }
}

impl FlowContent {
    /// The value of a key that the template itself has.
    fn key(&self, key: &str) -> Option<Json> {
        match (self, key) {
            (Self::App { app, .. }, "app") => app.emit(),
            (Self::App { options, .. }, "options") => options_table(options),
            // At least one side has instructions, or the template would be invalid.
            (Self::Programs { client, .. }, "client") => {
                Some(client.iter().map(|located| json!(located.text)).collect())
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
