//! Flows of a profile, compiled: programs from their text, pools from their addresses, rates to
//! fractions.
//!
//! What is wrong is told with its place in the profile, all mistakes at once.

mod apps;
mod network;
mod planned;
mod script;
mod tls;
mod tunables;

use std::{collections::BTreeMap, sync::Arc};

use squall_apps::{
    Data, DataOrder, Delays, Import, ImportOptions, Imported, Message, Program,
    Role as ProgramRole, Transport,
};
use squall_flows::{
    AddrRange, Arrival, Cps, Ends as PlayedEnds, Limits, Load, Network, Order, PORTS, Part, Pool,
    Role, Script, Spacing, Target, Template, Think,
};
use squall_profile::{At, Flows, Mistakes, Profile, Said, Says};
use squall_program::{Shape, ShapeError, Stage};
use squall_report::report::flows::ConversationsReport;
use squall_units::{Cannot, MacAddr, Nanos, Segmentation};

use self::script::Played;
use crate::{Assets, PortLimits};

pub use apps::{ApplicationInfo, applications, catalogue};
pub use planned::{PlannedLoad, PlannedPool, PlannedTemplate};
pub use script::ends_text;

/// Locally administered, where an interface has no address of its own.
const CLIENT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

const ETHERNET_HEADER: u32 = 14;
/// The longest GSO frame that a port is given to cut: more segments at once are worth little, and
/// wait in queues.
const GSO_MAX_SIZE: u32 = 32 << 10;

/// Attacks that are spoken by TCP and UDP of our own.
pub struct Spoken<'a> {
    /// Where and how: as `[flows]` would say it.
    pub said: Flows,
    /// For mistakes.
    pub attack: &'a squall_profile::Attack,
    /// What both ends say.
    pub import: Import,
}

/// A load, and the ports that carry its sides.
#[derive(Clone, Debug)]
pub struct PlanFlows {
    pub load: Load,
    pub sides: Vec<FlowSide>,
    /// By the load's templates, before any other joined it, those of the profile; a script's have
    /// none there.
    pub of_profile: Vec<usize>,
    /// What is known of the load's scripts before they are played.
    pub scripts: Vec<PlanScript>,
    /// What bounds templates beside their own words.
    pub notes: Vec<String>,
}

/// A capture whose conversations are played, or attacks that are spoken.
#[derive(Clone, Debug)]
pub struct PlanScript {
    pub of_attacks: bool,
    pub report: ConversationsReport,
    /// Of each conversation its number in the capture, or among the attacks, from 1.
    pub numbers: Vec<u64>,
}

/// A script of a load, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct PlayedScript<'a> {
    pub script: &'a Script,
    /// Conversations of the scripts before it, whose numbers come before its own.
    pub before: usize,
    pub plan: &'a PlanScript,
}

/// What a port carries of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSide {
    /// In the plan.
    pub port: usize,
    pub role: Role,
    /// What it plays of the load as either role.
    pub clients: Part,
    pub servers: Part,
    pub network: Network,
    /// Flows that there is room for at once on each worker, those in TIME-WAIT included:
    /// [`squall_flows::FLOWS`].
    pub flows: u32,
}

impl PlanFlows {
    /// These flows as they go on as `new`: [`Load::joined`].
    #[must_use]
    pub fn joined(&self, new: &Self) -> Self {
        Self { load: self.load.joined(&new.load), ..new.clone() }
    }

    /// The script of attacks, or that of a capture.
    pub fn script(&self, of_attacks: bool) -> Option<PlayedScript<'_>> {
        let number = self.scripts.iter().position(|script| script.of_attacks == of_attacks)?;
        let before = self.scripts[..number].iter().map(|script| script.numbers.len()).sum();
        Some(PlayedScript {
            script: &self.load.scripts[number],
            before,
            plan: &self.scripts[number],
        })
    }

    /// What is spoken of attacks goes on as `old` has begun it.
    pub fn keep_attacks(&mut self, old: &Self) {
        let of_attacks = |flows: &Self| flows.scripts.iter().position(|script| script.of_attacks);
        if let (Some(mine), Some(theirs)) = (of_attacks(self), of_attacks(old)) {
            self.load.scripts[mine].clone_from(&old.load.scripts[theirs]);
        }
    }

    /// Ports that flows are played on.
    pub fn ports(&self) -> impl Iterator<Item = usize> + '_ {
        self.sides.iter().map(|side| side.port)
    }
}

impl FlowSide {
    /// The longest frame that a port is to be opened for, octets without FCS.
    pub fn max_frame(&self, segmentation: Segmentation) -> u32 {
        self.network.longest_frame().max(self.gso_max_size(segmentation) + ETHERNET_HEADER)
    }

    /// The longest packet that the port cuts; 0: it cuts none.
    pub fn gso_max_size(&self, segmentation: Segmentation) -> u32 {
        match segmentation {
            Segmentation::Port(offload) if self.network.wraps.is_empty() && offload.tcp > 1 => {
                let payload = u32::from(self.network.mtu).saturating_sub(60);
                let cut = offload.tcp.saturating_mul(payload).saturating_add(40);
                cut.min(offload.max_frame.saturating_sub(ETHERNET_HEADER)).min(GSO_MAX_SIZE)
            }
            _ => 0,
        }
    }
}

/// The flows of `profile`, and what is `spoken` beside them, for ports with `limits`; `None`: it has
/// none, or `mistakes` say why not.
pub(crate) fn compile(
    profile: &Profile,
    spoken: Option<Spoken<'_>>,
    limits: &[PortLimits],
    assets: &dyn Assets,
    mistakes: &mut Mistakes<'_>,
) -> Option<PlanFlows> {
    let own = profile.flows.as_ref();
    if own.is_none() && spoken.is_none() {
        return None;
    }
    let before = mistakes.len();
    let attacks = spoken.as_ref().map(|spoken| spoken.said.clone());
    let spoken_at = spoken.as_ref().map(|spoken| spoken.attack.at);
    let none = Flows::default();
    let flows = own.unwrap_or(&none);
    let mut pools: Vec<Pool> = flows.pools.iter().map(|said| pool(said, mistakes)).collect();
    let mut captures = Captures { assets, read: Vec::new(), tables: Vec::new() };
    let mut notes = Vec::new();
    let (mut templates, mut of_profile): (Vec<Template>, Vec<usize>) = Default::default();
    for (number, said) in flows.templates.iter().enumerate() {
        templates.extend(self::templates(said, flows, &mut captures, &mut notes, mistakes));
        of_profile.resize(templates.len(), number);
    }
    let mut played: Vec<(bool, Played)> = Vec::new();
    if let Some(said) = &flows.replay {
        if flows.clients.is_none() {
            let text = "the capture's clients have no port";
            mistakes.note(&said.capture, text, "try in [flows]: clients = \"A\"");
        } else {
            played.extend(script::script(said, None, assets, mistakes).map(|one| (false, one)));
        }
    }
    if let (Some(Spoken { import, .. }), Some(said)) =
        (spoken, attacks.as_ref().and_then(|attacks| attacks.replay.as_ref()))
    {
        played.extend(script::script(said, Some(import), assets, mistakes).map(|one| (true, one)));
    }
    if let (Some(attacks), [(_, one), (_, other)]) = (spoken_at, &played[..])
        && let Some(both) = script::same_ends(&one.script, &other.script)
    {
        let text = format!(
            "an attack and a conversation of the capture have the same addresses and ports, {both}"
        );
        mistakes.at(
            attacks,
            &text,
            "try other networks of [[attack]], or server in [flows.replay]",
        );
    }
    let (mut scripts, mut plans) = (Vec::new(), Vec::new());
    for (of_attacks, one) in played {
        let (script, report, numbers) = one.behind(&mut pools, &mut templates);
        scripts.push(Arc::new(script));
        plans.push(PlanScript { of_attacks, report, numbers });
    }
    let load = Load {
        servers: pools.clone(),
        clients: pools,
        templates,
        target: flows.target.map(target),
        shape: ramp(flows.ramp, mistakes),
        limits: Limits {
            flows: flows.limit,
            duration: profile.stop.duration,
            active: flows.active_limit,
        },
        drain: flows.drain.unwrap_or(squall_flows::DRAIN),
        patience: flows.patience.unwrap_or(squall_flows::PATIENCE),
        seed: profile.effective_seed(),
        scripts,
    };
    // Those of attacks come last.
    let own_scripts = u8::from(plans.first().is_some_and(|plan| !plan.of_attacks));
    let sides = sides((own, own_scripts), attacks.as_ref(), spoken_at, &load, limits, mistakes);
    let wrong = || {
        let of_side = sides.iter().find_map(|side| load.check(&side.network).err());
        of_side.or_else(|| flows.servers.and_then(|_| load.check_servers().err()))
    };
    if mistakes.len() == before
        && let Some(error) = wrong()
    {
        let at = place_of(&error, flows);
        mistakes.told(&Said { text: String::new(), at: at.unwrap_or_default() }, &error);
    }
    (mistakes.len() == before).then_some(PlanFlows {
        load,
        sides,
        of_profile,
        scripts: plans,
        notes,
    })
}

/// The side of the load that each port plays: its templates and `own_scripts` belong to `own`, all
/// other scripts to attacks. `spoken_at` is where the attack is whose flows are
/// `attacks`.
fn sides(
    (own, own_scripts): (Option<&Flows>, u8),
    attacks: Option<&Flows>,
    spoken_at: Option<At>,
    load: &Load,
    limits: &[PortLimits],
    mistakes: &mut Mistakes<'_>,
) -> Vec<FlowSide> {
    let begins = !load.scripts.is_empty()
        || load.templates.iter().any(|template| !matches!(template.arrival, Arrival::None));
    // Ethernet's, or as much as the longest segments need that somebody asked for.
    let mss = load.templates.iter().flat_map(|t| [t.client_tunables.mss, t.server_tunables.mss]);
    let wanted = mss.map(|mss| u32::from(mss) + 40).fold(1500, u32::max);
    let mut sides: Vec<FlowSide> = Vec::new();
    let (first, second) = match (own, attacks) {
        (Some(own), Some(attacks)) => (
            Some((own, Part { scripts: own_scripts, ..Part::ALL })),
            Some((attacks, Part { scripts: !own_scripts, ..Part::NOTHING })),
        ),
        (own, attacks) => (own.or(attacks).map(|all| (all, Part::ALL)), None),
    };
    for (number, (of, part)) in first.into_iter().chain(second).enumerate() {
        for (port, role, said, fallback) in [
            (of.clients, Role::Clients, &of.client_network, CLIENT_MAC),
            (of.servers, Role::Servers, &of.server_network, SERVER_MAC),
        ] {
            let Some(port) = port else { continue };
            // Where nobody begins a flow, servers serve until the run ends.
            if role == Role::Clients && !begins {
                continue;
            }
            if let Some(side) = sides.iter_mut().find(|side| side.port == port) {
                if number > 0 && side.role != role && side.role != Role::Both {
                    let at = spoken_at.unwrap_or_default();
                    let text = "attacks and flows have opposite directions: the port of the \
                                clients of one is the port of the servers of the other";
                    mistakes.at(at, text, "try exchanging port and port2, or live = false");
                }
                add_role(side, role, part);
                if *said != squall_profile::Network::default() {
                    without_effect(said, number == 0, mistakes);
                }
                continue;
            }
            let longest = limits[port].max_frame.saturating_sub(ETHERNET_HEADER);
            let mac = limits[port].mac.unwrap_or(fallback);
            let mtu = longest.clamp(576, wanted) as u16;
            let network = network::network(said, mac, mtu, mistakes);
            let (clients, servers) = (Part::NOTHING, Part::NOTHING);
            let mut side =
                FlowSide { port, role, clients, servers, network, flows: squall_flows::FLOWS };
            add_role(&mut side, role, part);
            sides.push(side);
        }
    }
    sides
}

/// A port has one network, that of its first role: says so of another one, `said`.
fn without_effect(said: &squall_profile::Network, of_flows: bool, mistakes: &mut Mistakes<'_>) {
    let words = said.mac.iter().chain(&said.next_hop).chain(&said.gateway).chain(&said.wrap);
    let at = words.map(|word| word.at).next().unwrap_or_default();
    let (text, hint) = if of_flows {
        (
            "server_network has no effect",
            "clients and servers on one port have one network: try client_network",
        )
    } else {
        (
            "the network of [[attack]] has no effect",
            "flows use the same port, and all hosts of a port have one network: try it in [flows]",
        )
    };
    mistakes.at(at, text, hint);
}

/// Where the template is that an error names.
fn place_of(error: &squall_flows::LoadError, flows: &Flows) -> Option<At> {
    // One of a mix has the name of its template in front.
    let named = |said: &&squall_profile::Template| {
        error
            .template()
            .and_then(|name| name.strip_prefix(&said.name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    flows.templates.iter().filter(named).max_by_key(|said| said.name.len()).map(|said| said.at)
}

/// The side plays `part` in this role, too.
fn add_role(side: &mut FlowSide, role: Role, part: Part) {
    if side.role != role {
        side.role = Role::Both;
    }
    let of = if role == Role::Clients { &mut side.clients } else { &mut side.servers };
    *of = of.and(part);
}

fn target(target: squall_profile::Target) -> Target {
    match target {
        squall_profile::Target::Cps(cps) => Target::Cps(Cps::from_f64(cps)),
        squall_profile::Target::Active(flows) => Target::Active(flows),
        squall_profile::Target::Bandwidth(rate) => Target::Bandwidth(rate.num / rate.den.max(1)),
    }
}

fn pool(said: &squall_profile::Pool, mistakes: &mut Mistakes<'_>) -> Pool {
    let range = |text: &Said| match text.text.parse::<AddrRange>() {
        Ok(range) => Some(range),
        Err(error) => {
            mistakes.told(text, &error);
            None
        }
    };
    Pool {
        name: said.name.clone(),
        ranges: said.addresses.iter().filter_map(range).collect(),
        ports: said.ports.map_or(PORTS, |(first, last)| first..=last),
        order: match said.order {
            squall_profile::Order::Sequential => Order::Sequential,
            squall_profile::Order::Random => Order::Random,
            squall_profile::Order::Hash => Order::Hash,
        },
    }
}

/// One, or those that a mix consists of.
fn templates(
    said: &squall_profile::Template,
    flows: &Flows,
    captures: &mut Captures<'_>,
    notes: &mut Vec<String>,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Template> {
    let data = match said.data.as_ref().map(|data| captures.data(data, mistakes)) {
        Some(None) => return Vec::new(),
        data => data.flatten(),
    };
    let Some(ends) = ends(said, flows, data.as_ref(), captures, mistakes) else {
        return Vec::new();
    };
    no_effect(said, flows, &ends, mistakes);
    let most = data.as_ref().and_then(Data::limit);
    if most.is_some() && said.arrival == squall_profile::Arrival::Called {
        let text =
            format!("template {:?}: order = \"once\" has no effect beside called", said.name);
        mistakes.at(said.at, &text, "try order = \"circular\" or \"random\"");
    }
    if let (Some(data), Some(records)) = (&said.data, most) {
        let effect = match said.limit {
            Some(limit) if limit < records => format!("limit = {limit} uses {limit} of them"),
            _ => format!("at most {records} flows begin"),
        };
        notes.push(format!(
            "template {:?}: {} has {records} records, each for one flow: {effect}",
            said.name, data.file.text
        ));
    }
    let limit = said.limit.into_iter().chain(most).min();
    let client_tunables = tunables::of_side(&said.tcp, &said.client_tcp, mistakes);
    let server_tunables = tunables::of_side(&said.tcp, &said.server_tcp, mistakes);
    let tls = tls::tls(said, said.plays_servers(flows), captures.assets, mistakes);
    let shape = stages(said, mistakes);
    let (several, shares) = (ends.len() > 1, ends.iter().map(|(share, ..)| share).sum());
    // Where those who speak HTTP inside of TLS look for it.
    let usual = |port: u16| if port == 80 && tls.is_some() { 443 } else { port };
    let template = |(share, name, ends): (u32, String, Ends)| Template {
        name: if several { format!("{} {name}", said.name) } else { said.name.clone() },
        clients: said.clients,
        servers: said.servers,
        port: said.listen.filter(|_| !several).unwrap_or(usual(ends.port)),
        client: ends.client,
        server: ends.server,
        tls: tls.clone(),
        client_tunables: client_tunables.clone(),
        server_tunables: server_tunables.clone(),
        ends: match said.play {
            squall_profile::Play::Both => PlayedEnds::Both,
            squall_profile::Play::Clients => PlayedEnds::Clients,
            squall_profile::Play::Servers => PlayedEnds::Servers,
        },
        arrival: arrival(said.arrival, share, shares),
        limit: limit.map(|limit| (limit * u64::from(share)).div_ceil(u64::from(shares))),
        start: said.start,
        duration: said.duration,
        waits: said.after.is_some(),
        shape: shape.clone(),
        gone: false,
        joined: false,
    };
    ends.into_iter().map(template).collect()
}

/// Notes what a template says and nothing listens to.
fn no_effect(
    said: &squall_profile::Template,
    flows: &Flows,
    ends: &[(u32, String, Ends)],
    mistakes: &mut Mistakes<'_>,
) {
    let name = &said.name;
    let over =
        |transport: Transport| ends.iter().all(|(.., ends)| ends.client.transport == transport);
    if let (Some(port), [_, _, ..]) = (said.listen, ends) {
        let text = format!("template {name:?}: listen = {port} has no effect on a mix");
        mistakes.at(
            said.at,
            &text,
            "each application of a mix has its own port: try one template per application",
        );
    }
    if let Some(data) = &said.data
        && !ends.iter().any(|(.., ends)| ends.client.uses_data() || ends.server.uses_data())
    {
        let text = format!("template {name:?}: data has no effect: no message uses a column");
        let hint =
            "try ${data:COLUMN} in a message, or in url, header or content of app = \"http\"";
        mistakes.note(&data.file, &text, hint);
    }
    if said.transport == squall_profile::Transport::Udp
        && !matches!(said.says, Says::Programs { .. })
        && !over(Transport::Udp)
    {
        let text = format!("template {name:?}: transport = \"udp\" has no effect");
        mistakes.at(said.at, &text, "applications and captures have their own transport");
    }
    let sides = [&said.tcp, &said.client_tcp, &said.server_tcp];
    for (setting, value) in sides.into_iter().flat_map(|tcp| &tcp.settings) {
        let stray = match setting.as_str() {
            "udp_idle" => over(Transport::Tcp),
            "mss" | "tos" | "ttl" => false,
            known => over(Transport::Udp) && tunables::NAMES.contains(&known),
        };
        if stray {
            let transport = if over(Transport::Tcp) { "TCP" } else { "UDP" };
            let text = format!(
                "tcp.{setting} has no effect: the flows of template {name:?} are over {transport}"
            );
            mistakes.note(value, &text, "try leaving it out");
        }
    }
    let random = match (said.arrival, flows.target) {
        (squall_profile::Arrival::Users { think: Nanos::ZERO, spacing, .. }, _)
        | (
            squall_profile::Arrival::Weight { spacing, .. },
            Some(squall_profile::Target::Active(_)),
        ) => spacing,
        _ => squall_profile::Spacing::Constant,
    };
    if random == squall_profile::Spacing::Poisson {
        let text = format!("template {name:?}: spacing = \"poisson\" has no effect");
        let hint =
            "its flows begin when earlier ones end: try think = \"100 ms\" with users, or cps";
        mistakes.at(said.at, &text, hint);
    }
}

/// How the load changes as a whole.
fn ramp(said: squall_profile::Ramp, mistakes: &mut Mistakes<'_>) -> Shape {
    let shape = Shape::ramp(said.up, said.hold, said.down);
    shape.unwrap_or_else(|error| {
        let text = match error {
            ShapeError::TooLong(_) => "ramp_up and ramp_down take at most 24 h each",
            ShapeError::Nothing | ShapeError::Endless => "ramp_up, hold and ramp_down have no time",
        };
        mistakes.at(At::default(), text, "try ramp_up = \"10 s\", hold = \"1 min\"");
        Shape::default()
    })
}

/// How the load of a template changes by itself.
fn stages(said: &squall_profile::Template, mistakes: &mut Mistakes<'_>) -> Option<Shape> {
    let full = match said.arrival {
        squall_profile::Arrival::Cps { cps, .. } => cps,
        squall_profile::Arrival::Users { users, .. } => users.into(),
        squall_profile::Arrival::Weight { .. }
        | squall_profile::Arrival::Called
        | squall_profile::Arrival::None => return None,
    };
    if said.stages.is_empty() {
        return None;
    }
    // As exact as a number of flows a second.
    let level = |level: f64| (level * 1e6).round() as u64;
    let stage =
        |stage: &squall_profile::Stage<f64>| Stage { lasts: stage.lasts, to: level(stage.to) };
    let stages: Vec<_> = said.stages.iter().map(stage).collect();
    match Shape::new(&stages, level(full)) {
        Ok(shape) => Some(shape),
        Err(_) => {
            let text = format!("template {:?}: its stages never reach a level above 0", said.name);
            mistakes.at(said.at, &text, "try [{ duration = \"10 s\", to = 500 }]");
            None
        }
    }
}

/// Its share of `shares` of a template's flows.
fn arrival(said: squall_profile::Arrival, share: u32, shares: u32) -> Arrival {
    let spacing = |said| match said {
        squall_profile::Spacing::Poisson => Spacing::Poisson,
        squall_profile::Spacing::Constant => Spacing::Constant,
    };
    match said {
        squall_profile::Arrival::Cps { cps, spacing: said } => {
            let cps = Cps::from_f64(cps * f64::from(share) / f64::from(shares));
            Arrival::Open { cps, spacing: spacing(said) }
        }
        squall_profile::Arrival::Weight { weight, spacing: said } => {
            Arrival::Weight { weight: weight.saturating_mul(share), spacing: spacing(said) }
        }
        squall_profile::Arrival::Users { users, think, spacing } => Arrival::Closed {
            users: (u64::from(users) * u64::from(share)).div_ceil(shares.into()) as u32,
            think: match spacing {
                squall_profile::Spacing::Poisson => Think::Exponential(think),
                squall_profile::Spacing::Constant => Think::Fixed(think),
            },
        },
        squall_profile::Arrival::Called => Arrival::Called,
        squall_profile::Arrival::None => Arrival::None,
    }
}

/// Captures that were read, by name and what becomes of delays, and tables of data: each is read
/// once, however many templates name it.
struct Captures<'a> {
    assets: &'a dyn Assets,
    read: Vec<(String, squall_profile::Delays, Result<Import, String>)>,
    tables: Vec<(String, Data)>,
}

/// Programs of both ends of a flow, and the port on which servers wait for it.
struct Ends {
    client: Program,
    server: Program,
    port: u16,
}

fn ends(
    said: &squall_profile::Template,
    flows: &Flows,
    data: Option<&Data>,
    captures: &mut Captures<'_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<(u32, String, Ends)>> {
    let name = said.name.as_str();
    let transport = match said.transport {
        squall_profile::Transport::Udp => Transport::Udp,
        squall_profile::Transport::Tcp => Transport::Tcp,
    };
    match &said.says {
        Says::Programs { client, server, messages } => {
            let mut named = BTreeMap::new();
            for (message, text) in messages {
                let parsed = text.text.parse::<Message>().and_then(|parsed| match data {
                    Some(data) => parsed.with_data(data),
                    None => Ok(parsed),
                });
                match parsed {
                    Ok(parsed) => drop(named.insert(message.clone(), parsed)),
                    Err(error) => mistakes.told(text, &error),
                }
            }
            if (client.is_empty() && said.plays_clients(flows))
                || (server.is_empty() && said.plays_servers(flows))
            {
                let side = if client.is_empty() { "client" } else { "server" };
                let nowhere = Said { text: String::new(), at: said.at };
                let text = format!(
                    "template {name:?} has no instructions for the {side}, which Squall plays"
                );
                mistakes.note(
                    &nowhere,
                    &text,
                    &format!(
                        "try adding {side} = [...], or play = {:?}, or leave out the port of \
                         {side}s in [flows]",
                        if client.is_empty() { "servers" } else { "clients" }
                    ),
                );
                return None;
            }
            let mut program = |role, lines: &[Said]| {
                program(name, role, transport, lines, (&named, data), mistakes)
            };
            let client = program(ProgramRole::Client, client);
            let server = program(ProgramRole::Server, server);
            Some(vec![(
                1,
                said.name.clone(),
                Ends { client: client?, server: server?, port: said.listen? },
            )])
        }
        Says::App { app, options } => apps::ends(app, options, (data, captures.assets), mistakes),
        Says::Capture { path, number, delays } => {
            match captures.conversations(&path.text, *delays) {
                Ok(found) => match usize::try_from(number - 1)
                    .ok()
                    .filter(|n| *n < found.conversations.len())
                {
                    Some(at) => {
                        let Imported { client, server, server_end, .. } =
                            found.conversations[at].clone();
                        Some(vec![(
                            1,
                            said.name.clone(),
                            Ends { client, server, port: said.listen.unwrap_or(server_end.1) },
                        )])
                    }
                    None => {
                        let all = found.conversations.len();
                        let text = format!("{} has no conversation {number}", path.text);
                        mistakes.note(path, &text, &format!("it has {all}, counted from 1"));
                        None
                    }
                },
                Err(error) => {
                    mistakes.told(path, &error);
                    None
                }
            }
        }
    }
}

impl Captures<'_> {
    /// `None`: `mistakes` say why not.
    fn data(&mut self, said: &squall_profile::Data, mistakes: &mut Mistakes<'_>) -> Option<Data> {
        let path = &said.file.text;
        let order = match said.order {
            squall_profile::DataOrder::Circular => DataOrder::Circular,
            squall_profile::DataOrder::Once => DataOrder::Once,
            squall_profile::DataOrder::Random => DataOrder::Random,
        };
        if let Some((_, known)) = self.tables.iter().find(|(of, _)| of == path) {
            return Some(known.in_order(order));
        }
        let read = self.assets.file(path).map_err(|error| Cannot::read(path, &error).to_string());
        let parse = |octets: Vec<u8>| {
            Data::from_csv(&octets, order).map_err(|error| format!("{path}: {error}"))
        };
        match read.and_then(parse) {
            Ok(data) => {
                self.tables.push((path.clone(), data.clone()));
                Some(data)
            }
            Err(error) => {
                let hint = "expected comma-separated values: one line with the names of the \
                            columns, such as user,password, then one line per record";
                mistakes.note(&said.file, &error, hint);
                None
            }
        }
    }

    fn conversations(
        &mut self,
        path: &str,
        delays: squall_profile::Delays,
    ) -> Result<&Import, &str> {
        let known = self.read.iter().position(|(of, with, _)| of == path && *with == delays);
        let at = known.unwrap_or_else(|| {
            let options =
                ImportOptions { delays: self::delays(delays), ..ImportOptions::default() };
            let read = self.assets.conversations(path, None, &options);
            self.read.push((path.to_owned(), delays, read));
            self.read.len() - 1
        });
        self.read[at].2.as_ref().map_err(String::as_str)
    }
}

/// What a profile says of delays.
fn delays(said: squall_profile::Delays) -> Delays {
    match said {
        squall_profile::Delays::Keep => Delays::Keep,
        squall_profile::Delays::Drop => Delays::Drop,
        squall_profile::Delays::Scale(factor) => Delays::Scale(factor),
    }
}

/// Of a side that somebody else plays nothing is said: a program that does nothing stands for it.
fn program(
    name: &str,
    role: ProgramRole,
    transport: Transport,
    lines: &[Said],
    (messages, data): (&BTreeMap<String, Message>, Option<&Data>),
    mistakes: &mut Mistakes<'_>,
) -> Option<Program> {
    let nothing = [Said::from("wait_peer_close")];
    let lines = if lines.is_empty() { &nothing } else { lines };
    let texts = lines.iter().map(|line| line.text.as_str());
    match Program::parse_with_data(name, role, transport, texts, messages.clone(), data) {
        Ok(program) => Some(program),
        Err(error) => {
            let line =
                error.instruction.checked_sub(1).and_then(|i| lines.get(i)).unwrap_or(&lines[0]);
            mistakes.told(line, &error);
            None
        }
    }
}
