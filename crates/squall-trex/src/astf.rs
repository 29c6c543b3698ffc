//! A TRex flow profile (ASTF) as sent by its clients, and its translation to Squall's flows.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use squall_apps::{
    Amount, Compare, Condition, Delay, Instruction, Message, MessageRef, Value as Number,
};
use squall_profile::{
    Arrival, FlowContent, Flows, Located, Network, Order, Play, Pool, PortPair, Ramp, Spacing, Tcp,
    Template, Transport,
};
use squall_units::Nanos;

use crate::{
    Problem,
    pairs::{FlowPair, FlowPort, Split},
};

/// A profile of flows: templates with the programs of both sides, address ranges and rates.
#[derive(Clone, Debug, Deserialize)]
pub struct Astf {
    #[serde(default)]
    buf_list: Vec<Buffer>,
    ip_gen_dist_list: Vec<Distribution>,
    program_list: Vec<Program>,
    templates: Vec<AstfTemplate>,
    /// Names of template groups 1, 2, ...
    #[serde(default)]
    pub tg_names: Vec<String>,
    #[serde(default)]
    c_glob_info: Map<String, Value>,
    #[serde(default)]
    s_glob_info: Map<String, Value>,
    /// Program counters of each group.
    #[serde(skip)]
    counters: BTreeMap<usize, BTreeSet<String>>,
}

/// Octets in base64, optionally padded to a size.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Buffer {
    Whole(String),
    Filled { base: String, size: u32, fill: Option<String> },
}

#[derive(Clone, Debug, Deserialize)]
struct Distribution {
    ip_start: Ipv4Addr,
    ip_end: Ipv4Addr,
    #[serde(default)]
    distribution: String,
    /// Added for each further pair of ports.
    #[serde(default = "unmoved")]
    ip_offset: Ipv4Addr,
    /// `seq`: divided among the cores of a pair, but not among pairs.
    #[serde(default)]
    per_core_distribution: Option<String>,
}

fn unmoved() -> Ipv4Addr {
    Ipv4Addr::UNSPECIFIED
}

#[derive(Clone, Debug, Deserialize)]
struct Program {
    commands: Vec<Value>,
    /// TCP if set, otherwise UDP.
    #[serde(default = "yes")]
    stream: bool,
    addon: Option<String>,
}

impl Program {
    /// Maximum silence before a flow is ended, in milliseconds, if set by a `keepalive` command.
    fn longest_silence(&self) -> Option<u64> {
        let is_one = |command: &&Value| command["name"] == "keepalive";
        let silences = self.commands.iter().filter(is_one).filter_map(|of| of["msec"].as_f64());
        silences.map(|msec| (msec as u64).clamp(1, LONGEST_IDLE * 1000)).max()
    }
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Deserialize)]
struct AstfTemplate {
    client_template: ClientTemplate,
    server_template: ServerTemplate,
    #[serde(default)]
    tg_id: usize,
}

#[derive(Clone, Debug, Deserialize)]
struct ClientTemplate {
    program_index: usize,
    ip_gen: IpGen,
    port: u16,
    cps: Option<f64>,
    limit: Option<u64>,
    /// Start a new flow whenever one ends, with up to `limit` flows open.
    #[serde(default, deserialize_with = "truth")]
    cont: bool,
    #[serde(default)]
    glob_info: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct IpGen {
    dist_client: Index,
    dist_server: Index,
}

#[derive(Clone, Debug, Deserialize)]
struct Index {
    index: usize,
}

#[derive(Clone, Debug, Deserialize)]
struct ServerTemplate {
    program_index: usize,
    /// Where its servers listen. The first one counts.
    #[serde(default)]
    assoc: Vec<Association>,
    #[serde(default)]
    glob_info: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Association {
    port: u16,
}

fn truth<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Bool(is) => is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        _ => false,
    })
}

/// A program command.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
enum Command {
    Tx {
        buf_index: usize,
    },
    TxMsg {
        buf_index: usize,
    },
    Rx {
        min_bytes: u64,
        #[serde(default, deserialize_with = "truth")]
        clear: bool,
    },
    RxMsg {
        min_pkts: u64,
        #[serde(default, deserialize_with = "truth")]
        clear: bool,
    },
    Keepalive {
        msec: f64,
    },
    CloseMsg,
    Delay {
        usec: f64,
    },
    DelayRnd {
        min_usec: f64,
        max_usec: f64,
    },
    Connect,
    Reset,
    /// Let the peer close first.
    Nc,
    /// Whether a send waits until its octets are acknowledged.
    TxMode {
        #[serde(default)]
        flags: u64,
    },
    SetVar {
        id: u32,
        val: u64,
    },
    AddVar {
        id: u32,
        val: i64,
    },
    SetTickVar {
        id: u32,
    },
    AddTickVar {
        id: u32,
        duration: f64,
    },
    AddStats {
        stats_id: u32,
        val: u64,
    },
    AddTickStats {
        stats_id: u32,
        var_id: u32,
    },
    JmpNz {
        id: u32,
        offset: i64,
    },
    JmpDp {
        id: u32,
        offset: i64,
        duration: f64,
    },
    JmpCmp {
        id: Option<u32>,
        offset: i64,
        cmp_op: Option<String>,
        #[serde(default)]
        cmp_val: u64,
    },
    /// Select the template group of the next flow to begin.
    SetTemplate {
        tg_id: usize,
    },
    ExecTemplate,
}

impl Command {
    /// Whether the program waits at this command.
    fn waits(&self, tcp: bool) -> bool {
        match self {
            Self::Rx { .. }
            | Self::RxMsg { .. }
            | Self::Delay { .. }
            | Self::DelayRnd { .. }
            | Self::ExecTemplate => true,
            Self::Tx { .. } => tcp,
            _ => false,
        }
    }
}

/// Parameters of a start, in addition to the profile.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSetting {
    /// Multiplies the flow rate of each template.
    pub mult: f64,
    /// Use IPv6, regardless of the profile.
    pub ipv6: bool,
    /// The pairs of ports, at least one, which share the load.
    pub pairs: Vec<FlowPair>,
    /// Cores of each pair.
    pub cores: u32,
}

impl Default for FlowSetting {
    fn default() -> Self {
        Self { mult: 1.0, ipv6: false, pairs: vec![FlowPair::of(0, 1)], cores: 1 }
    }
}

impl FlowSetting {
    fn split(&self) -> Split {
        Split { pairs: self.pairs.len() as u32, cores: self.cores.max(1) }
    }

    /// Pair `number`, counted from 1, which names templates and pools.
    fn pair(&self, number: u16) -> &FlowPair {
        &self.pairs[usize::from(number) - 1]
    }
}

/// TRex's defaults, for both sides.
const DEFAULTS: &[(&str, &str)] = &[
    ("window", "32768"),
    ("wscale", "0"),
    ("reassembly", "32768"),
    ("option_order", "bsd"),
    ("no_delay", "false"),
    ("peer_mss", "false"),
    ("abc_limit", "2"),
    ("send_buffer", "32768"),
    ("delayed_ack", "200 ms"),
    ("ack_octets", TIMER_ONLY),
    ("ack_push", "true"),
    ("rto_min", "1 s"),
    ("congestion", "newreno"),
    ("ttl", "127"),
];
/// Upper limit of the idle time of a UDP flow, seconds.
const LONGEST_IDLE: u64 = 3600;
/// Upper limit of the delay of acknowledgments, milliseconds (RFC 9293 section 3.8.6.3).
const LONGEST_ACK_DELAY: u64 = 500;
/// Exceeds any amount of unacknowledged data, so only the timer triggers acknowledgments.
const TIMER_ONLY: &str = "1 GiB";
/// A delay after which the acknowledgments that were due have left.
const AT_ONCE: Delay = Delay::Fixed(Nanos(1_000));
/// Maximum octets of a segment's payload and options.
const MSS: u64 = 1460;
/// IPv6 hop limit.
const HOPS: &str = "64";

impl Astf {
    /// # Errors
    /// The value is not a profile.
    pub fn read(value: &Value) -> Result<Self, Problem> {
        let mut read = Self::deserialize(value).map_err(|error| Problem::new(error.to_string()))?;
        for template in &read.templates {
            let programs =
                [template.client_template.program_index, template.server_template.program_index];
            let programs = programs.into_iter().filter_map(|at| read.program_list.get(at));
            let numbers = programs
                .flat_map(|program| &program.commands)
                .filter_map(|command| u32::try_from(command.get("stats_id")?.as_u64()?).ok());
            // An ID without a name is skipped here; the translation of its command reports the
            // error.
            let named = numbers.filter_map(|id| counter_of(id).ok());
            read.counters.entry(template.tg_id).or_default().extend(named);
        }
        Ok(read)
    }

    /// Whether the value is a profile of flows rather than streams.
    pub fn is_one(value: &Value) -> bool {
        value.get("templates").is_some() && value.get("program_list").is_some()
    }

    /// For each template: its name, its group number (0: none), and whether it uses UDP.
    pub fn groups(&self) -> impl Iterator<Item = (String, usize, bool)> {
        self.templates.iter().enumerate().map(|(number, template)| {
            let program = self.program_list.get(template.client_template.program_index);
            let udp = program.is_some_and(|program| !program.stream);
            (name_of(number, 1), template.tg_id, udp)
        })
    }

    /// Counters of the programs in a group's templates.
    pub fn counters_of(&self, group: usize) -> impl ExactSizeIterator<Item = String> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        self.counters.get(&group).unwrap_or(&NONE).iter().cloned()
    }

    /// The settings of the profile and its templates, and their effect in Squall.
    pub(crate) fn tunables(&self) -> Vec<Tunable> {
        let mut found = Vec::new();
        let mut add = |scope: &str, info: &Map<String, Value>, client: bool| {
            for (section, values) in info {
                for (name, value) in values.as_object().into_iter().flatten() {
                    let effect = effect(section, name, value, client);
                    let (scope, name) = (scope.to_owned(), format!("{section}.{name}"));
                    found.push(Tunable { scope, name, value: value.clone(), effect });
                }
            }
        };
        add("clients", &self.c_glob_info, true);
        add("servers", &self.s_glob_info, false);
        for (number, template) in self.templates.iter().enumerate() {
            let name = name_of(number, 1);
            add(&format!("{name}, client"), &template.client_template.glob_info, true);
            add(&format!("{name}, server"), &template.server_template.glob_info, false);
        }
        found
    }

    /// Translates to Squall's flows: each template on each pair of ports.
    ///
    /// # Errors
    /// A command without an equivalent instruction, or an inconsistent profile.
    pub fn flows(&self, setting: &FlowSetting) -> Result<Flows, Problem> {
        if self.templates.is_empty() {
            return Err(Problem::new("the profile has no templates"));
        }
        let mut ports = setting.pairs.iter().map(ports_of);
        let first = ports.next().unwrap_or_default();
        let mut flows = Flows {
            clients: first.clients,
            servers: first.servers,
            client_network: first.client_network,
            server_network: first.server_network,
            pairs: ports.collect(),
            ramp: self.ramp()?,
            ..Flows::default()
        };
        for pair in 1..=setting.pairs.len() as u16 {
            for (number, template) in self.templates.iter().enumerate() {
                let of = |problem: Problem| problem.of(format!("template {number}"));
                let template =
                    self.template((number, pair), template, setting, &mut flows).map_err(of)?;
                flows.templates.push(template);
            }
        }
        Ok(flows)
    }

    fn template(
        &self,
        (number, pair): (usize, u16),
        template: &AstfTemplate,
        setting: &FlowSetting,
        flows: &mut Flows,
    ) -> Result<Template, Problem> {
        let (client, server) = (&template.client_template, &template.server_template);
        let family = self.family(setting, &client.glob_info)?;
        let (clients, servers) = (
            self.pool(
                client.ip_gen.dist_client.index,
                true,
                &family.client,
                (setting, pair),
                flows,
            )?,
            self.pool(
                client.ip_gen.dist_server.index,
                false,
                &family.server,
                (setting, pair),
                flows,
            )?,
        );
        let of = |index: usize| {
            let program = self.program_list.get(index);
            program.ok_or_else(|| Problem::new(format!("there is no program {index}")))
        };
        let (client_program, server_program) =
            (of(client.program_index)?, of(server.program_index)?);
        if client_program.stream != server_program.stream {
            return Err(Problem::new("one of its programs is of TCP, the other of UDP"));
        }
        let mut messages = BTreeMap::new();
        let client_lines = self
            .program(client_program, true, pair, &mut messages)
            .map_err(|problem| problem.of(format!("program {}", client.program_index)))?;
        let server_lines = self
            .program(server_program, false, pair, &mut messages)
            .map_err(|problem| problem.of(format!("program {}", server.program_index)))?;
        let split = setting.split();
        let share = setting.mult / f64::from(split.pairs);
        let cps = client.cps.filter(|cps| *cps != 0.0).map(|cps| cps * share);
        if let Some(cps) = cps.filter(|cps| !(cps.is_finite() && *cps > 0.0)) {
            return Err(Problem::new(format!("cps = {cps}: expected more than 0")));
        }
        let limit = client.limit.map(|limit| split.share(limit, u32::from(pair) - 1));
        let play = match setting.pair(pair) {
            FlowPair { clients: None, .. } => Play::Servers,
            FlowPair { servers: None, .. } => Play::Clients,
            _ => Play::Both,
        };
        let arrival = match (cps, limit) {
            _ if play == Play::Servers => Arrival::None,
            // A template without `cps` begins flows only when another program starts them.
            (None, _) => Arrival::Called,
            // A pair without a user.
            (Some(_), Some(0)) if client.cont => Arrival::Called,
            (Some(_), Some(limit)) if client.cont => {
                let users = word("limit", limit)?;
                Arrival::Users { users, think: Nanos::ZERO, spacing: Spacing::Constant }
            }
            (Some(cps), _) => Arrival::Cps { cps, spacing: Spacing::Constant },
        };
        Ok(Template {
            name: name_of(number, pair),
            clients,
            servers,
            pair,
            play,
            // External clients go to the port where TRex's servers listen.
            listen: Some(match (play, server.assoc.first()) {
                (Play::Servers, Some(of)) => of.port,
                _ => client.port,
            }),
            transport: match client_program.stream {
                true => Transport::Tcp,
                false => Transport::Udp,
            },
            content: FlowContent::Programs {
                client: client_lines,
                server: server_lines,
                messages: messages.into_iter().collect(),
            },
            arrival,
            limit: limit
                .filter(|_| !client.cont && !matches!(arrival, Arrival::Called | Arrival::None)),
            client_tcp: Side { client: true, program: client_program, family: &family }
                .tcp(&self.c_glob_info, &client.glob_info)?,
            server_tcp: Side { client: false, program: server_program, family: &family }
                .tcp(&self.s_glob_info, &server.glob_info)?,
            ..Template::default()
        })
    }

    /// The pool of a distribution on a pair of ports, added on first use.
    fn pool(
        &self,
        index: usize,
        clients: bool,
        high: &Option<Ipv6Addr>,
        (setting, pair): (&FlowSetting, u16),
        flows: &mut Flows,
    ) -> Result<usize, Problem> {
        let from = self
            .ip_gen_dist_list
            .get(index)
            .ok_or_else(|| Problem::new(format!("there is no distribution {index}")))?;
        let address = |low: Ipv4Addr| match high {
            None => IpAddr::V4(low),
            Some(high) => {
                let high = u128::from(*high) >> 32 << 32;
                IpAddr::V6(Ipv6Addr::from(high | u128::from(u32::from(low))))
            }
        };
        if from.ip_end < from.ip_start {
            let text = format!("{}-{}: the last address is first", from.ip_start, from.ip_end);
            return Err(Problem::new(text));
        }
        let per_core = from.per_core_distribution.as_deref() == Some("seq");
        let (all, number) = ((from.ip_start, from.ip_end), u32::from(pair) - 1);
        let ranges = setting.split().addresses(all, from.ip_offset, per_core, number);
        let text = |(first, last): (Ipv4Addr, Ipv4Addr)| {
            Located::from(format!("{}-{}", address(first), address(last)).as_str())
        };
        // TRex takes clients in turn whatever the distribution, and random servers only with `rand`.
        let order = match from.distribution.as_str() {
            "rand" if !clients => Order::Random,
            "" | "seq" | "rand" | "normal" => Order::Sequential,
            other => {
                return Err(Problem::new(format!(
                    "distribution {other:?}: expected seq, rand or normal"
                )));
            }
        };
        // Templates with other upper bits have pools of their own.
        let mut name = format!("addresses {index}");
        if let Some(high) = high {
            name += &format!(" of {high}");
        }
        if order == Order::Random {
            name += ", random";
        }
        name += &suffix(pair);
        if let Some(known) = flows.pools.iter().position(|pool| pool.name == name) {
            flows.pools[known].shared |= clients;
            return Ok(known);
        }
        flows.pools.push(Pool {
            name,
            addresses: ranges.into_iter().map(text).collect(),
            order,
            // TRex has one tuple generator for all templates of a pool.
            shared: clients,
            ..Pool::default()
        });
        Ok(flows.pools.len() - 1)
    }

    /// The address family of a template, from its clients' settings `own`. Servers answer in the
    /// family of the client's packets.
    fn family(&self, setting: &FlowSetting, own: &Map<String, Value>) -> Result<Family, Problem> {
        let all = [object(&self.c_glob_info, "ipv6")?, object(own, "ipv6")?];
        let is_on = |value: &Value| value.as_u64().map_or(*value == true, |on| on != 0);
        let enabled = all.iter().any(|ipv6| ipv6.get("enable").is_some_and(is_on));
        if !enabled && !setting.ipv6 {
            return Ok(Family { client: None, server: None });
        }
        // The profile's upper bits take precedence over those of the template.
        let high = |key: &str| -> Result<Option<Ipv6Addr>, Problem> {
            let value = all.iter().find_map(|ipv6| ipv6.get(key));
            let Some(value) = value else { return Ok(Some(Ipv6Addr::UNSPECIFIED)) };
            <[u8; 16]>::deserialize(value)
                .map(|octets| Some(Ipv6Addr::from(octets)))
                .map_err(|error| Problem::new(format!("ipv6.{key}: {error}")))
        };
        Ok(Family { client: high("src_msb")?, server: high("dst_msb")? })
    }

    fn ramp(&self) -> Result<Ramp, Problem> {
        let scheduler = object(&self.c_glob_info, "scheduler")?;
        let seconds = scheduler.get("rampup_sec").and_then(Value::as_u64).unwrap_or(0);
        let up = seconds.checked_mul(1_000_000_000).map(Nanos);
        let up = up.ok_or_else(|| Problem::new(format!("rampup_sec = {seconds}: too long")))?;
        Ok(Ramp { up, ..Ramp::default() })
    }

    /// Translates a program, and adds its messages under their names.
    fn program(
        &self,
        program: &Program,
        client: bool,
        pair: u16,
        messages: &mut BTreeMap<String, Located>,
    ) -> Result<Vec<Located>, Problem> {
        // The `latency` add-on needs no translation: reports include the delays of all flows.
        match program.addon.as_deref() {
            None | Some("latency") => {}
            Some(other) => {
                return Err(Problem::new(format!("addon = {other:?}: not supported")));
            }
        }
        let mut commands = Vec::new();
        for (number, value) in program.commands.iter().enumerate() {
            let wrong = |error: serde_json::Error| {
                Problem::new(error.to_string()).of(format!("command {number}"))
            };
            commands.push(Command::deserialize(value).map_err(wrong)?);
        }
        let mut lines = Lines {
            buffers: &self.buf_list,
            tcp: program.stream,
            templates: &self.templates,
            pair,
            commands: &commands,
            messages,
            goes_on: false,
            all: vec![],
        };
        lines.push(if client { Instruction::Connect } else { Instruction::Accept });
        let targets: Vec<usize> = commands
            .iter()
            .enumerate()
            .filter_map(|(at, command)| target(at, command))
            .map(|to| {
                let to = usize::try_from(to).ok().filter(|to| *to <= commands.len());
                to.ok_or_else(|| Problem::new("a jump out of the program"))
            })
            .collect::<Result<_, _>>()?;
        // Octets received since the last clear, as TRex counts them.
        let mut have = 0;
        for (at, command) in commands.iter().enumerate() {
            if targets.contains(&at) {
                lines.push(Instruction::Label(label(at)));
            }
            lines
                .command(at, command, &mut have)
                .map_err(|problem| problem.of(format!("command {at}")))?;
        }
        if targets.contains(&commands.len()) {
            lines.push(Instruction::Label(label(commands.len())));
        }
        let ends = matches!(commands.last(), Some(Command::Reset | Command::Nc));
        if program.stream && !ends {
            // Close; like in TRex, further data from the peer is discarded.
            lines.push(Instruction::Close);
            lines.push(Instruction::WaitPeerClose);
        }
        Ok(lines.all)
    }
}

/// Upper bits of the clients' and servers' IPv6 addresses; `None`: IPv4.
struct Family {
    client: Option<Ipv6Addr>,
    server: Option<Ipv6Addr>,
}

fn name_of(number: usize, pair: u16) -> String {
    format!("template {number}{}", suffix(pair))
}

/// The suffix of names on a further pair of ports.
fn suffix(pair: u16) -> String {
    if pair > 1 { format!(", pair {pair}") } else { String::new() }
}

/// The name of a template on the first pair, from its name on any.
pub(crate) fn without_pair(name: &str) -> &str {
    match name.rsplit_once(", pair ") {
        Some((first, pair)) if pair.parse::<u16>().is_ok() => first,
        _ => name,
    }
}

/// The profile's name for a counter: `A`, `B` ...
fn counter_of(id: u32) -> Result<String, Problem> {
    match u8::try_from(id).ok().filter(|id| *id < 26) {
        Some(id) => Ok(char::from(b'A' + id).to_string()),
        None => Err(Problem::new(format!("stats_id = {id}: expected at most 25, Z"))),
    }
}

fn label(at: usize) -> String {
    format!("at{at}")
}

fn object<'a>(of: &'a Map<String, Value>, key: &str) -> Result<&'a Map<String, Value>, Problem> {
    static NOTHING: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    match of.get(key) {
        None | Some(Value::Null) => Ok(&NOTHING),
        Some(Value::Object(object)) => Ok(object),
        Some(_) => Err(Problem::new(format!("{key}: expected an object"))),
    }
}

fn ports_of(pair: &FlowPair) -> PortPair {
    let of = |end: &Option<FlowPort>| {
        let network = end.as_ref().map(network).unwrap_or_default();
        (end.as_ref().map(|end| end.port), network)
    };
    let ((clients, client_network), (servers, server_network)) =
        (of(&pair.clients), of(&pair.servers));
    PortPair { clients, servers, client_network, server_network }
}

fn network(port: &FlowPort) -> Network {
    let text = |text: String| Located::from(text.as_str());
    Network {
        mac: port.mac.map(|mac| text(mac.to_string())),
        next_hop: port.next_hop.map(|mac| text(mac.to_string())),
        wrap: port.vlan.map(|id| text(format!("vlan {id}"))).into_iter().collect(),
        interface: port.interfaces.clone(),
        ..Network::default()
    }
}

/// Jump target of a command at index `at`.
fn target(at: usize, command: &Command) -> Option<i64> {
    match command {
        Command::JmpNz { offset, .. }
        | Command::JmpDp { offset, .. }
        | Command::JmpCmp { offset, .. } => Some((at as i64).saturating_add(*offset)),
        _ => None,
    }
}

struct Lines<'a> {
    buffers: &'a [Buffer],
    tcp: bool,
    templates: &'a [AstfTemplate],
    pair: u16,
    commands: &'a [Command],
    messages: &'a mut BTreeMap<String, Located>,
    /// Whether sends do not wait for acknowledgments.
    goes_on: bool,
    all: Vec<Located>,
}

impl Lines<'_> {
    fn push(&mut self, instruction: Instruction) {
        self.all.push(Located::from(instruction.to_string().as_str()));
    }

    fn command(&mut self, at: usize, command: &Command, have: &mut u64) -> Result<(), Problem> {
        let jump = |condition: Option<Condition>| {
            let to = target(at, command).unwrap_or(0);
            Instruction::Jump { label: format!("at{to}"), condition }
        };
        // A loop without any wait gets one; otherwise it would run forever without time passing.
        if let Command::JmpDp { .. } | Command::JmpCmp { .. } = command
            && let Some(to) = target(at, command).and_then(|to| usize::try_from(to).ok())
            && to < at
            && !self.commands[to..at].iter().any(|within| within.waits(self.tcp))
        {
            self.push(Instruction::Delay(Delay::Fixed(Nanos(1))));
        }
        let variable = |id: &u32| format!("v{id}");
        let clock = |id: &u32| format!("t{id}");
        match command {
            Command::Tx { buf_index } | Command::TxMsg { buf_index } => {
                let message = MessageRef::Named(self.message(*buf_index)?);
                match self.tcp {
                    true => {
                        self.push(Instruction::Send(message));
                        if !self.goes_on {
                            self.push(Instruction::Flush);
                        }
                    }
                    false => self.push(Instruction::SendPacket(message)),
                }
            }
            Command::Rx { min_bytes: until, clear } | Command::RxMsg { min_pkts: until, clear } => {
                let more = until.saturating_sub(*have);
                let more = u32::try_from(more)
                    .map_err(|_| Problem::new(format!("{more}: expected less than 2^32")))?;
                *have = if *clear { 0 } else { *until };
                match (more, self.tcp) {
                    (0, _) => {}
                    (octets, true) => self.push(Instruction::Recv { octets, within: None }),
                    (packets, false) => {
                        self.push(Instruction::RecvPackets { packets, take: None, within: None });
                    }
                }
            }
            Command::Keepalive { msec } => self.push(Instruction::Keepalive(time(*msec, 1e6)?)),
            Command::CloseMsg => self.push(Instruction::Close),
            Command::Delay { usec } => {
                self.push(Instruction::Delay(Delay::Fixed(time(*usec, 1e3)?)))
            }
            Command::DelayRnd { min_usec, max_usec } => {
                let delay = Delay::Uniform(time(*min_usec, 1e3)?, time(*max_usec, 1e3)?);
                self.push(Instruction::Delay(delay));
            }
            // The ACK of the SYN-ACK leaves before the data that follows.
            Command::Connect if at == 0 => self.push(Instruction::Delay(AT_ONCE)),
            Command::Connect => {
                return Err(Problem::new("connect is supported as the first command only"));
            }
            Command::Reset => {
                // Acknowledge received data before the RST, as TRex does.
                self.push(Instruction::Delay(AT_ONCE));
                self.push(Instruction::Reset);
            }
            Command::Nc => {
                self.push(Instruction::WaitPeerClose);
                // Delay the own FIN until the peer's is acknowledged.
                self.push(Instruction::Delay(AT_ONCE));
            }
            Command::TxMode { flags } => self.goes_on = flags & 1 != 0,
            Command::AddStats { stats_id, val } => {
                let amount = Amount::Constant(word("val", *val)?);
                self.push(Instruction::Count { counter: counter_of(*stats_id)?, amount });
            }
            Command::AddTickStats { stats_id, var_id } => {
                let amount = Amount::Elapsed(clock(var_id));
                self.push(Instruction::Count { counter: counter_of(*stats_id)?, amount });
            }
            Command::SetVar { id, val } => {
                let value = Number::Constant(word("val", *val)?);
                self.push(Instruction::Set { variable: variable(id), value });
            }
            Command::AddVar { id, val } => {
                self.push(Instruction::Add { variable: variable(id), value: *val });
            }
            Command::SetTickVar { id } => {
                self.push(Instruction::Set { variable: clock(id), value: Number::Clock });
            }
            Command::AddTickVar { id, duration } => {
                let value = (time(*duration, 1e9)?.0 / 1_000_000) as i64;
                self.push(Instruction::Add { variable: clock(id), value });
            }
            Command::JmpNz { id, .. } => {
                self.push(Instruction::Add { variable: variable(id), value: -1 });
                self.push(jump(Some(Condition {
                    variable: variable(id),
                    elapsed: false,
                    compare: Compare::Unequal,
                    value: 0,
                })));
            }
            Command::JmpDp { id, duration, .. } => {
                let millis = time(*duration, 1e9)?.0 / 1_000_000;
                let value = u32::try_from(millis).ok().filter(|millis| *millis <= i32::MAX as u32);
                let value = value.ok_or_else(|| {
                    Problem::new(format!("duration = {duration}: expected at most 24 days"))
                })?;
                self.push(jump(Some(Condition {
                    variable: clock(id),
                    elapsed: true,
                    compare: Compare::Less,
                    value,
                })));
            }
            Command::JmpCmp { id: Some(id), cmp_op: Some(op), cmp_val, .. } => {
                let compare = match op.as_str() {
                    "lt" => Compare::Less,
                    "le" => Compare::LessOrEqual,
                    "gt" => Compare::Greater,
                    "ge" => Compare::GreaterOrEqual,
                    "eq" => Compare::Equal,
                    "ne" => Compare::Unequal,
                    other => {
                        return Err(Problem::new(format!(
                            "cmp_op = {other:?}: expected lt, le, gt, ge, eq or ne"
                        )));
                    }
                };
                let value = word("cmp_val", *cmp_val)?;
                self.push(jump(Some(Condition {
                    variable: variable(id),
                    elapsed: false,
                    compare,
                    value,
                })));
            }
            Command::JmpCmp { .. } => self.push(jump(None)),
            Command::SetTemplate { tg_id } => {
                let group = self.templates.iter().position(|of| of.tg_id == *tg_id && *tg_id > 0);
                let first = group
                    .ok_or_else(|| Problem::new(format!("no template is of group {tg_id}")))?;
                self.push(Instruction::Next(name_of(first, self.pair)));
            }
            Command::ExecTemplate => self.push(Instruction::Begin(None)),
        }
        Ok(())
    }

    /// The name of a buffer's message; adds the message on first use.
    fn message(&mut self, index: usize) -> Result<String, Problem> {
        let name = format!("b{index}");
        if self.messages.contains_key(&name) {
            return Ok(name);
        }
        let buffer = self
            .buffers
            .get(index)
            .ok_or_else(|| Problem::new(format!("there is no buffer {index}")))?;
        let decoded = |text: &String| {
            STANDARD
                .decode(text)
                .map_err(|error| Problem::new(error.to_string()).of(format!("buffer {index}")))
        };
        let message = match buffer {
            Buffer::Whole(text) => Message::octets(decoded(text)?),
            Buffer::Filled { base, size, fill } => {
                let base = decoded(base)?;
                let rest = size.saturating_sub(base.len() as u32);
                // Without `fill`, repeat the base; without a base, use zeros.
                let mut pattern = match fill {
                    Some(fill) => decoded(fill)?,
                    None => base.clone(),
                };
                if pattern.is_empty() {
                    pattern.push(0);
                }
                match rest {
                    0 => Message::octets(base),
                    rest => Message::octets(base).then(Message::repeat(pattern, rest)),
                }
            }
        };
        self.messages.insert(name.clone(), Located::from(message.to_string().as_str()));
        Ok(name)
    }
}

/// Checks that a value fits into 32 bits.
fn word(name: &str, value: u64) -> Result<u32, Problem> {
    u32::try_from(value)
        .map_err(|_| Problem::new(format!("{name} = {value}: expected less than 2^32")))
}

/// Converts `amount` units of `nanos` nanoseconds each to a time.
fn time(amount: f64, nanos: f64) -> Result<Nanos, Problem> {
    let time = amount * nanos;
    match time.is_finite() && (0.0..=86_400e9).contains(&time) {
        true => Ok(Nanos(time as u64)),
        false => Err(Problem::new(format!("a time of {amount}: expected 0 to a day"))),
    }
}

/// A side of a template.
struct Side<'a> {
    client: bool,
    program: &'a Program,
    family: &'a Family,
}

impl Side<'_> {
    /// TCP settings: TRex's defaults, then those of the profile, then of the template.
    fn tcp(&self, global: &Map<String, Value>, own: &Map<String, Value>) -> Result<Tcp, Problem> {
        let mut all: BTreeMap<&str, String> = BTreeMap::new();
        for (name, value) in DEFAULTS {
            all.insert(name, (*value).to_owned());
        }
        let v6 = self.family.client.is_some();
        if v6 {
            all.insert("ttl", HOPS.to_owned());
        }
        for info in [global, own] {
            for (section, values) in info {
                let values = values
                    .as_object()
                    .ok_or_else(|| Problem::new(format!("{section}: expected an object")))?;
                for (name, value) in values {
                    take(section, name, value, self.client, &mut all)?;
                }
            }
        }
        // TRex uses the same MSS over IPv6. Squall reduces it by the longer header, so add the
        // difference.
        if v6 {
            let mss = all.get("mss").map_or(Ok(MSS), |text| text.parse());
            all.insert("mss", mss.map_or(MSS, |mss: u64| mss.saturating_add(20)).to_string());
        }
        if !self.program.stream {
            all.retain(|name, _| matches!(*name, "ttl" | "tos"));
            // A `keepalive` command overrides the idle time after which a flow ends.
            if let Some(longest) = self.program.longest_silence() {
                all.insert("udp_idle", format!("{longest} ms"));
            }
        }
        let settings =
            all.into_iter().map(|(name, text)| (name.to_owned(), Located::from(text.as_str())));
        Ok(Tcp { settings: settings.collect() })
    }
}

/// A setting of TRex's TCP, addresses or scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Tunable {
    /// The part of the profile that sets it.
    pub scope: String,
    pub name: String,
    pub value: Value,
    pub effect: String,
}

/// The effect of a setting in Squall.
fn effect(section: &str, name: &str, value: &Value, client: bool) -> String {
    match take(section, name, value, client, &mut BTreeMap::new()) {
        Err(problem) => format!("refused: {problem}"),
        Ok(Effect::Taken) => "taken".to_owned(),
        Ok(Effect::Default) => "TRex's default, and Squall's behavior".to_owned(),
        Ok(Effect::None) => "without effect, as in TRex".to_owned(),
        Ok(Effect::Limited(to)) => format!("differs: at most {to}"),
    }
}

/// The effect of a setting.
enum Effect {
    Taken,
    /// None: Squall does this anyway.
    Default,
    /// None in TRex either.
    None,
    /// A larger value is limited to this one.
    Limited(String),
}

/// Adds a setting of one side, `client` or server, to Squall's.
///
/// # Errors
/// A setting that TRex does not have, or a value that Squall has no equivalent of.
fn take<'a>(
    section: &str,
    name: &'a str,
    value: &Value,
    client: bool,
    all: &mut BTreeMap<&'a str, String>,
) -> Result<Effect, Problem> {
    let number = value.as_u64().or_else(|| value.as_bool().map(u64::from));
    let need =
        || number.ok_or_else(|| Problem::new(format!("{section}.{name}: expected a number")));
    match (section, name) {
        ("tcp", _) => of_tcp(name, need()?, client, all),
        ("ip", _) => of_ip(name, need()?, all),
        // Used by the translation of addresses.
        ("ipv6", "enable" | "src_msb" | "dst_msb") if client => Ok(Effect::Taken),
        ("ipv6", "enable" | "src_msb" | "dst_msb") => Ok(Effect::None),
        // Used by the translation of the ramp, which only clients have.
        ("scheduler", "rampup_sec") if client => need().map(|_| Effect::Taken),
        ("scheduler", "rampup_sec") => Ok(Effect::None),
        _ => Err(Problem::new(format!("{section}.{name}: not known"))),
    }
}

fn of_tcp<'a>(
    name: &'a str,
    number: u64,
    client: bool,
    all: &mut BTreeMap<&'a str, String>,
) -> Result<Effect, Problem> {
    let truth = |on: bool| on.to_string();
    let only = |default: u64| match number == default {
        true => Ok(Effect::Default),
        false => {
            Err(Problem::new(format!("tcp.{name} = {number}: only TRex's default, {default}")))
        }
    };
    match name {
        "mss" | "initwnd" => _ = all.insert(name, number.to_string()),
        "rxbufsize" => {
            let scale = (0..14).find(|scale| number <= 65_535 << scale).unwrap_or(14);
            all.insert("window", number.to_string());
            all.insert("reassembly", number.to_string());
            all.entry("wscale").and_modify(|text| {
                if text != "false" {
                    *text = scale.to_string();
                }
            });
        }
        "do_rfc1323" if number == 0 => {
            all.insert("timestamps", truth(false));
            all.insert("wscale", truth(false));
        }
        "do_rfc1323" => return only(1),
        "do_sack" => _ = all.insert("sack", truth(number != 0)),
        // With 2, only servers agree to ECN.
        "do_ecn" => _ = all.insert("ecn", truth(number == 1 || (number == 2 && !client))),
        "cc_algo" => {
            let name = if number == 1 { "cubic" } else { "newreno" };
            all.insert("congestion", name.to_owned());
        }
        "keepidle" | "keepintvl" => _ = all.insert(name, format!("{number} s")),
        "keepinit" => _ = all.insert("syn_retries", syn_retries(number).to_string()),
        "delay_ack_msec" => {
            all.insert("delayed_ack", format!("{} ms", number.min(LONGEST_ACK_DELAY)));
            if number > LONGEST_ACK_DELAY {
                return Ok(Effect::Limited(format!("{LONGEST_ACK_DELAY} ms")));
            }
        }
        "no_delay_counter" if number > 0 => _ = all.insert("ack_octets", number.to_string()),
        "no_delay_counter" => _ = all.insert("ack_octets", TIMER_ONLY.to_owned()),
        "txbufsize" => _ = all.insert("send_buffer", number.to_string()),
        "no_delay" => {
            all.insert("no_delay", truth(number & 1 != 0));
            all.insert("push_all", truth(number & 2 != 0));
        }
        "rexmtthresh" => return only(3),
        "blackhole" => return only(0),
        "reass_maxqlen" => return only(100),
        other => return Err(Problem::new(format!("tcp.{other}: not known"))),
    }
    Ok(Effect::Taken)
}

/// Number of repeated SYNs that leave within `seconds`, after 1, 3, 7, ... seconds (RFC 6298), at
/// most 14.
fn syn_retries(seconds: u64) -> u32 {
    (1..=14).take_while(|n| (1u64 << n) - 1 < seconds).last().unwrap_or(0)
}

fn of_ip(name: &str, number: u64, all: &mut BTreeMap<&str, String>) -> Result<Effect, Problem> {
    match name {
        // TRex uses the lowest bit, and TTLs above 127, for its latency packets.
        "tos" => _ = all.insert("tos", (number & !1).to_string()),
        "ttl" => _ = all.insert("ttl", number.min(127).to_string()),
        "dont_use_inbound_mac" if number == 0 => return Ok(Effect::Default),
        "dont_use_inbound_mac" => {
            return Err(Problem::new(
                "ip.dont_use_inbound_mac = 1: servers answer to the MAC address of the request",
            ));
        }
        other => return Err(Problem::new(format!("ip.{other}: not known"))),
    }
    Ok(Effect::Taken)
}
