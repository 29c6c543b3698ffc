//! Flows as values: who speaks with whom, what, and how often. Programs, messages and addresses
//! stay text here, with their places: whoever compiles them knows what they mean.

use serde_json::{Map, Value as Json, json};
use squall_units::{Nanos, Rate};

use crate::{
    At, Stage,
    emit::{count, duration, options_table, table, texts},
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

/// Templates, and the load that they make together; or conversations that are played instead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    pub pools: Vec<Pool>,
    pub templates: Vec<Template>,
    pub replay: Option<Conversations>,
    /// What clients do, and what servers do, stands on these ports: indices into
    /// [`crate::Profile::ports`]. One of them is there at least; if one is missing, somebody else
    /// is the other end.
    pub clients: Option<usize>,
    pub servers: Option<usize>,
    pub client_network: Network,
    pub server_network: Network,
    pub target: Option<Target>,
    pub ramp: Ramp,
    /// Flows that begin at most, and that are open at once at most.
    pub limit: Option<u64>,
    pub active_limit: Option<u64>,
    /// How long open flows may go on at the end.
    pub drain: Option<Nanos>,
    /// How late a flow may begin before it is given up.
    pub patience: Option<Nanos>,
}

/// Addresses of clients or servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: String,
    /// `16.0.0.1-16.0.0.254`, `16.0.0.0/24`, `fd00::1-fd00::ff`
    pub addresses: Vec<Said>,
    /// Of clients: first and last.
    pub ports: Option<(u16, u16)>,
    pub order: Order,
    pub at: At,
}

/// Which address and port the next flow has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Sequential,
    Random,
    Hash,
}

/// A kind of flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub name: String,
    /// Indices into [`Flows::pools`].
    pub clients: usize,
    pub servers: usize,
    /// Where servers listen; `None`: where the application usually does.
    pub listen: Option<u16>,
    pub udp: bool,
    pub says: Says,
    /// Whose records messages have columns of.
    pub data: Option<Data>,
    pub play: Play,
    pub arrival: Arrival,
    /// How `cps` or `users` change from its start on; empty: not. It ends with the last.
    pub stages: Vec<Stage<f64>>,
    /// Flows of this template at most.
    pub limit: Option<u64>,
    /// No flow begins before, from the beginning of the run or the end of what it comes `after`;
    /// nor so long after that.
    pub start: Nanos,
    pub duration: Option<Nanos>,
    pub after: Option<Said>,
    pub tcp: Tcp,
    /// Of one side, on top of `tcp`.
    pub client_tcp: Tcp,
    pub server_tcp: Tcp,
    /// Its flows are TLS sessions.
    pub tls: Option<Tls>,
    pub at: At,
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

/// Records of a CSV file, one for each flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    pub file: Said,
    pub order: DataOrder,
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

/// What becomes of the delays of a conversation that was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Delays {
    #[default]
    Keep,
    Drop,
    /// Multiplied by this.
    Scale(f64),
}

/// All conversations of a capture, each with addresses and a beginning of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversations {
    pub capture: Said,
    pub begin: Begin,
    /// `None`: as the beginnings; none if those come as fast as possible.
    pub delays: Option<Delays>,
    /// Shorter pauses are left out.
    pub shortest_delay: Option<Nanos>,
    /// 0: until the run ends.
    pub loops: u64,
    /// Between loops.
    pub loop_delay: Nanos,
    /// Conversations that are open at once at most.
    pub at_once: Option<u64>,
    /// Addresses that stand for the clients' of the capture; none: the captured ones.
    pub clients: Vec<Said>,
    /// `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT` that all conversations go to; none: where they
    /// went.
    pub server: Option<Said>,
    pub incomplete: Incomplete,
    /// In the language of tcpdump: packets of the capture that count.
    pub filter: Option<Said>,
    /// A conversation ends when nothing came for so long, and for as long as the other side paused
    /// in the capture; 0: never.
    pub within: Option<Nanos>,
    pub tcp: Tcp,
    pub at: At,
}

/// When the conversations of a capture begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Begin {
    /// So many times as fast as they were captured.
    Captured(f64),
    /// So many a second.
    Cps(f64),
    /// As fast as they can.
    Top,
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

/// When flows begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// So many a second.
    Cps { cps: f64, poisson: bool },
    /// A share of [`Flows::target`].
    Weight { weight: u32, poisson: bool },
    /// So many users, each of whom begins one when the last has ended and a time for thinking has
    /// passed.
    Users { users: u32, think: Nanos, exponential: bool },
    /// Only where programs of other flows begin them.
    Called,
    /// Never: servers alone.
    None,
}

/// What templates with a weight come to together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Flows that begin in a second.
    Cps(f64),
    /// Flows that are open at once.
    Active(u64),
    /// Of application data, both directions together.
    Bandwidth(Rate),
}

/// Linearly from nothing, steady, linearly to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ramp {
    pub up: Nanos,
    pub hold: Option<Nanos>,
    pub down: Nanos,
}

/// What stands around a side's packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// Default: the interface's, or 02:00:00:00:00:01 of clients and :02 of servers.
    pub mac: Option<Said>,
    /// Each address has a MAC address of its own.
    pub cluster: bool,
    pub gateway: Vec<Said>,
    /// Whom all packets are handed to; nobody is asked.
    pub next_hop: Option<Said>,
    pub mtu: Option<u16>,
    /// From outside in: `vlan 7`, `qinq 100`, `mpls 1000`, `gre FROM TO`, `vxlan FROM TO VNI`,
    /// `gtp-u FROM TO TEID TEID`.
    pub wraps: Vec<Said>,
}

/// How TCP behaves; what is not given stays as it is by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tcp {
    /// Names and values, of both sides.
    pub settings: Vec<(String, Said)>,
}

/// What TLS sessions are made with; of both sides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tls {
    /// Whom clients ask for.
    pub server_name: Option<Said>,
    pub alpn: Vec<Said>,
    /// Files: what clients verify the server by; the server's chain and its key.
    pub ca: Option<Said>,
    pub certificate: Option<Said>,
    pub key: Option<Said>,
    /// Files: what clients show, and what servers verify that by.
    pub client_certificate: Option<Said>,
    pub client_key: Option<Said>,
    pub client_ca: Option<Said>,
    pub resumption: bool,
    /// `1.2`, `1.3`; none: the latter.
    pub versions: Vec<Said>,
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
        let mut shared = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            shared.extend(value.map(|value| (key.to_owned(), value)))
        };
        set("clients", self.clients.and_then(&port).map(|name| json!(name)));
        set("servers", self.servers.and_then(&port).map(|name| json!(name)));
        match self.target {
            Some(Target::Cps(cps)) => set("cps", Some(json!(cps))),
            Some(Target::Active(flows)) => set("active", Some(count(flows))),
            Some(Target::Bandwidth(rate)) => set("bandwidth", Some(json!(rate.to_string()))),
            None => {}
        }
        let time = |time: Nanos| (time != Nanos::ZERO).then(|| duration(time));
        set("ramp_up", time(self.ramp.up));
        set("hold", self.ramp.hold.map(duration));
        set("ramp_down", time(self.ramp.down));
        set("limit", self.limit.map(count));
        set("active_limit", self.active_limit.map(count));
        set("drain", self.drain.map(duration));
        set("patience", self.patience.map(duration));
        set("client_network", self.client_network.to_value());
        set("server_network", self.server_network.to_value());
        set("replay", self.replay.as_ref().map(Conversations::to_value));
        let pools: Json = self.pools.iter().map(Pool::to_value).collect();
        let templates: Json =
            self.templates.iter().map(|template| template.to_value(&self.pools)).collect();
        let mut all = Map::new();
        all.insert("flows".into(), Json::Object(shared));
        if self.replay.is_some() {
            return all;
        }
        all.insert("pool".into(), pools);
        all.insert("template".into(), templates);
        all
    }
}

impl Network {
    /// `None`: all is as by default.
    pub(crate) fn to_value(&self) -> Option<Json> {
        if *self == Self::default() {
            return None;
        }
        let mut table = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            table.extend(value.map(|value| (key.to_owned(), value)))
        };
        set("mac", self.mac.as_ref().map(|mac| json!(mac.text)));
        set("cluster", self.cluster.then_some(json!(true)));
        set("gateway", texts(&self.gateway));
        set("next_hop", self.next_hop.as_ref().map(|hop| json!(hop.text)));
        set("mtu", self.mtu.map(|mtu| json!(mtu)));
        set("wrap", texts(&self.wraps));
        Some(Json::Object(table))
    }
}

impl Pool {
    fn to_value(&self) -> Json {
        let mut table = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            table.extend(value.map(|value| (key.to_owned(), value)))
        };
        set("name", Some(json!(self.name)));
        set("addresses", Some(self.addresses.iter().map(|said| json!(said.text)).collect()));
        set("ports", self.ports.map(|(first, last)| json!(format!("{first}-{last}"))));
        set(
            "order",
            match self.order {
                Order::Sequential => None,
                Order::Random => Some(json!("random")),
                Order::Hash => Some(json!("hash")),
            },
        );
        Json::Object(table)
    }
}

impl Delays {
    fn to_value(self) -> Json {
        match self {
            Self::Keep => json!("keep"),
            Self::Drop => json!("drop"),
            Self::Scale(factor) => json!(factor),
        }
    }
}

impl Conversations {
    fn to_value(&self) -> Json {
        let mut entries = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            entries.extend(value.map(|value| (key.to_owned(), value)))
        };
        set("capture", Some(json!(self.capture.text)));
        match self.begin {
            Begin::Captured(factor) => set("multiplier", (factor != 1.0).then(|| json!(factor))),
            Begin::Cps(cps) => set("cps", Some(json!(cps))),
            Begin::Top => set("topspeed", Some(json!(true))),
        }
        set("delays", self.delays.map(Delays::to_value));
        set("shortest_delay", self.shortest_delay.map(duration));
        set("loops", (self.loops != 1).then(|| count(self.loops)));
        set("loop_delay", (self.loop_delay != Nanos::ZERO).then(|| duration(self.loop_delay)));
        set("at_once", self.at_once.map(count));
        set("clients", texts(&self.clients));
        set("server", self.server.as_ref().map(|server| json!(server.text)));
        set(
            "incomplete",
            match self.incomplete {
                Incomplete::Skip => None,
                Incomplete::Cut => Some(json!("cut")),
                Incomplete::Zeros => Some(json!("zeros")),
            },
        );
        set("filter", self.filter.as_ref().map(|filter| json!(filter.text)));
        set("within", self.within.map(duration));
        set("tcp", table(&self.tcp.settings));
        Json::Object(entries)
    }
}

impl Tls {
    fn to_value(&self) -> Json {
        let mut table = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            table.extend(value.map(|value| (key.to_owned(), value)))
        };
        let text = |said: &Option<Said>| said.as_ref().map(|said| json!(said.text));
        set("server_name", text(&self.server_name));
        set("alpn", texts(&self.alpn));
        set("ca", text(&self.ca));
        set("certificate", text(&self.certificate));
        set("key", text(&self.key));
        set("client_certificate", text(&self.client_certificate));
        set("client_key", text(&self.client_key));
        set("client_ca", text(&self.client_ca));
        set("resumption", self.resumption.then_some(json!(true)));
        set("versions", texts(&self.versions));
        if table.is_empty() { json!(true) } else { Json::Object(table) }
    }
}

impl Data {
    fn to_value(&self) -> Json {
        match self.order {
            DataOrder::Circular => json!(self.file.text),
            DataOrder::Once => json!({ "file": self.file.text, "order": "once" }),
            DataOrder::Random => json!({ "file": self.file.text, "order": "random" }),
        }
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
        let mut entries = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            entries.extend(value.map(|value| (key.to_owned(), value)))
        };
        let pool = |number: usize| pools.get(number).map(|pool| json!(pool.name));
        set("name", Some(json!(self.name)));
        set("clients", pool(self.clients));
        set("servers", pool(self.servers));
        set("listen", self.listen.map(|port| json!(port)));
        set("transport", self.udp.then_some(json!("udp")));
        match &self.says {
            Says::App { app, options } => {
                set("app", Some(json!(app.text)));
                set("options", options_table(options));
            }
            Says::Programs { client, server, messages } => {
                // One of them is there, or there would be nothing to say.
                set("client", Some(client.iter().map(|said| json!(said.text)).collect()));
                set("server", texts(server));
                set("messages", table(messages));
            }
            Says::Capture { path, number, delays } => {
                set("capture", Some(json!(format!("{}#{number}", path.text))));
                set("delays", (*delays != Delays::Keep).then(|| delays.to_value()));
            }
        }
        set("data", self.data.as_ref().map(Data::to_value));
        set(
            "play",
            match self.play {
                Play::Both => None,
                Play::Clients => Some(json!("clients")),
                Play::Servers => Some(json!("servers")),
            },
        );
        let spacing = |random: bool| random.then_some(json!("poisson"));
        match self.arrival {
            Arrival::Cps { cps, poisson } => {
                set("cps", Some(json!(cps)));
                set("spacing", spacing(poisson));
            }
            Arrival::Weight { weight, poisson } => {
                set("weight", Some(json!(weight)));
                set("spacing", spacing(poisson));
            }
            Arrival::Users { users, think, exponential } => {
                set("users", Some(json!(users)));
                set("think", (think != Nanos::ZERO).then(|| duration(think)));
                set("spacing", spacing(exponential));
            }
            Arrival::Called => set("called", Some(json!(true))),
            Arrival::None => {}
        }
        set("stages", stage::to_value(&self.stages, |to| json!(to)));
        set("limit", self.limit.map(count));
        set("start", (self.start != Nanos::ZERO).then(|| duration(self.start)));
        set("duration", self.duration.map(duration));
        set("after", self.after.as_ref().map(|after| json!(after.text)));
        set("tcp", table(&self.tcp.settings));
        set("client_tcp", table(&self.client_tcp.settings));
        set("server_tcp", table(&self.server_tcp.settings));
        set("tls", self.tls.as_ref().map(Tls::to_value));
        Json::Object(entries)
    }
}
