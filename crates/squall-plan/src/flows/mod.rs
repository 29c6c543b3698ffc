//! Compiles the flows of a profile: programs and addresses from their text, rates to fractions.
//!
//! All errors are reported at once, with their positions in the profile.

mod apps;
mod grpc;
mod hosts;
mod layers;
mod network;
mod planned;
mod proxy;
mod script;
pub(crate) mod tls;
mod tunables;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use squall_apps::{
    Data, DataOrder, Delays, Http2, Http3, Import, ImportOptions, Imported, Message, MigrateTo,
    Program, Role as ProgramRole, Transport,
};
use squall_flows::{
    AddrRange, Arrival, Cps, Ends as PlayedEnds, Limits, Load, Network, Order, PORTS, Part, Pool,
    Role, Script, Spacing, Target, Template, Think,
};
use squall_profile::{
    At, Diagnostic, ErrorCollector, FlowContent, Flows, HttpVersion, Located, Profile,
};
use squall_program::{Shape, ShapeError, Stage};
use squall_report::report::flows::ConversationsReport;
use squall_units::{Cannot, MacAddr, Nanos, Segmentation};

use self::script::Played;
use crate::{Assets, PlanRouter, PortLimits, stream_routes};

pub use apps::{AppOption, ApplicationInfo, applications, catalog};
pub use layers::{LayerInfo, LayerOption, LayerOptionKind, layers};
pub use planned::{PlannedLoad, PlannedPool, PlannedTemplate};
pub use script::ends_text;
pub use tls::browsers;

/// The clients' MAC address if the interface has none. It is locally administered.
const CLIENT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

const ETHERNET_HEADER: u32 = 14;
/// Maximum length of a GSO frame passed to a port. More segments per frame save little, and have to
/// wait in queues.
const GSO_MAX_SIZE: u32 = 32 << 10;

/// Attacks whose conversations use Squall's own TCP and UDP.
pub struct LiveFlows<'a> {
    /// Their ports and networks, as in `[flows]` of a profile.
    pub flows: Flows,
    /// The attack, which gives errors their position.
    pub attack: &'a squall_profile::Attack,
    /// The conversations.
    pub import: Import,
    /// If their clients are hosts: the number of the group, and for each conversation that of its
    /// attack, whose conversations all have the same host.
    pub hosts: Option<(usize, Vec<u32>)>,
}

/// A load with the ports that carry its sides.
#[derive(Clone, Debug)]
pub struct PlanFlows {
    pub load: Load,
    pub sides: Vec<FlowSide>,
    /// For each of the load's own templates (not those of attacks), its number in the profile.
    /// Templates of scripts have none.
    pub of_profile: Vec<usize>,
    /// Facts about the load's scripts that are known before the run.
    pub scripts: Vec<PlanScript>,
    /// Notes on limits of templates that the profile does not mention.
    pub notes: Vec<String>,
}

/// The conversations of a capture, or those of live attacks.
#[derive(Clone, Debug)]
pub struct PlanScript {
    pub of_attacks: bool,
    pub report: ConversationsReport,
    /// For each conversation, its number in the capture or among the attacks (1-based).
    pub numbers: Vec<u64>,
}

/// A script in a load, with facts about it.
#[derive(Clone, Copy, Debug)]
pub struct PlayedScript<'a> {
    pub script: &'a Script,
    /// Number of conversations in earlier scripts, which have the lower numbers.
    pub before: usize,
    pub plan: &'a PlanScript,
}

/// The share of the load that a port carries.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSide {
    /// Index of the port in the plan.
    pub port: usize,
    pub role: Role,
    /// The shares of the load in either role.
    pub clients: Part,
    pub servers: Part,
    pub network: Network,
    /// Maximum number of flows per worker, including those in TIME-WAIT.
    pub flows: u32,
}

impl PlanFlows {
    /// Changes the flows of `self` to those of `new`: [`Load::joined`].
    #[must_use]
    pub fn joined(&self, new: &Self) -> Self {
        Self { load: self.load.joined(&new.load), ..new.clone() }
    }

    /// The script of the attacks if `of_attacks`, otherwise that of a capture.
    pub fn script(&self, of_attacks: bool) -> Option<PlayedScript<'_>> {
        let number = self.scripts.iter().position(|script| script.of_attacks == of_attacks)?;
        let before = self.scripts[..number].iter().map(|script| script.numbers.len()).sum();
        Some(PlayedScript {
            script: &self.load.scripts[number],
            before,
            plan: &self.scripts[number],
        })
    }

    /// Keeps the live attacks in `old`.
    pub fn keep_attacks(&mut self, old: &Self) {
        let of_attacks = |flows: &Self| flows.scripts.iter().position(|script| script.of_attacks);
        if let (Some(new_script), Some(old_script)) = (of_attacks(self), of_attacks(old)) {
            self.load.scripts[new_script].clone_from(&old.load.scripts[old_script]);
        }
    }

    /// Ports that flows are played on.
    pub fn ports(&self) -> impl Iterator<Item = usize> + '_ {
        self.sides.iter().map(|side| side.port)
    }
}

impl FlowSide {
    /// Maximum frame length for which a port is opened, in octets without FCS.
    pub fn max_frame(&self, segmentation: Segmentation) -> u32 {
        self.network.longest_frame().max(self.gso_max_size(segmentation) + ETHERNET_HEADER)
    }

    /// Maximum length of a packet that the port segments; 0: it segments none.
    pub fn gso_max_size(&self, segmentation: Segmentation) -> u32 {
        match segmentation {
            Segmentation::Port(offload) if self.network.is_plain() && offload.tcp > 1 => {
                let payload = u32::from(self.network.mtu).saturating_sub(60);
                let cut = offload.tcp.saturating_mul(payload).saturating_add(40);
                cut.min(offload.max_frame.saturating_sub(ETHERNET_HEADER)).min(GSO_MAX_SIZE)
            }
            _ => 0,
        }
    }
}

/// Compiles the flows of `profile` and live attacks for ports with `limits`. `None`: there are no
/// flows, or `mistakes` has the reason.
pub(crate) fn compile(
    profile: &Profile,
    live_flows: Option<LiveFlows<'_>>,
    (limits, routers): (&[PortLimits], &[PlanRouter]),
    (assets, memory): (&dyn Assets, u64),
    mistakes: &mut ErrorCollector<'_>,
) -> Option<PlanFlows> {
    let own = profile.flows.as_ref();
    if own.is_none() && live_flows.is_none() {
        return None;
    }
    let before = mistakes.len();
    let attacks = live_flows.as_ref().map(|live_flows| live_flows.flows.clone());
    let attack_at = live_flows.as_ref().map(|live_flows| live_flows.attack.at);
    let none = Flows::default();
    let flows = own.unwrap_or(&none);
    let mut notes = Vec::new();
    let pools = flows.pools.iter();
    let mut pools: Vec<Pool> =
        pools.map(|spec| pool(spec, profile, routers, &mut notes, mistakes)).collect();
    let mut captures = Captures { assets, read: Vec::new(), tables: Vec::new() };
    let (mut templates, mut of_profile): (Vec<Template>, Vec<usize>) = Default::default();
    for (number, spec) in flows.templates.iter().enumerate() {
        templates.extend(self::templates(spec, flows, &mut captures, &mut notes, mistakes));
        of_profile.resize(templates.len(), number);
    }
    let mut played: Vec<(bool, Played)> = Vec::new();
    if let Some(spec) = &flows.replay {
        if flows.clients.is_none() {
            let text = "the capture's clients have no port";
            mistakes.note(&spec.capture, text, "try in [flows]: clients = \"A\"");
        } else {
            let made = script::script(spec, (None, None), assets, mistakes);
            played.extend(made.map(|one| (false, one)));
        }
    }
    if let (Some(LiveFlows { import, hosts, .. }), Some(spec)) =
        (live_flows, attacks.as_ref().and_then(|attacks| attacks.replay.as_ref()))
    {
        let hosts = hosts.map(|(group, parties)| {
            let range = hosts::range(&profile.hosts, group);
            script::ScriptHosts { group, range, parties }
        });
        let found = (Some(import), hosts.as_ref());
        let made = script::script(spec, found, assets, mistakes);
        played.extend(made.map(|one| (true, one)));
    }
    if let (Some(attacks), [(_, one), (_, other)]) = (attack_at, &played[..])
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
        let (script, report, numbers) = one.append_to(&mut pools, &mut templates);
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
        max_delay: flows.max_delay.unwrap_or(squall_flows::MAX_DELAY),
        seed: profile.effective_seed(),
        scripts,
    };
    // Scripts of attacks are always last.
    let own_scripts = u8::from(plans.first().is_some_and(|plan| !plan.of_attacks));
    let most = flows.max_flows.unwrap_or_else(|| squall_flows::default_flows(memory));
    let of_attacks = (attacks.as_ref(), attack_at);
    let mut sides = sides((own, own_scripts), of_attacks, &load, most, limits, mistakes);
    hosts::check(flows, &load, (&profile.hosts, limits), mistakes);
    check_moves(flows, &load, mistakes);
    hosts::tag(&mut sides, &load, &profile.hosts, mistakes);
    let wrong = || {
        let of_side = sides.iter().find_map(|side| load.check(&side.network).err());
        let serves = sides.iter().any(|side| side.role != Role::Clients);
        of_side.or_else(|| serves.then(|| load.check_servers().err()).flatten())
    };
    if mistakes.len() == before
        && let Some(error) = wrong()
    {
        let at = place_of(&error, flows);
        mistakes.report(&Located { text: String::new(), at: at.unwrap_or_default() }, &error);
    }
    (mistakes.len() == before).then_some(PlanFlows {
        load,
        sides,
        of_profile,
        scripts: plans,
        notes,
    })
}

/// The part of the load that each port plays: the templates and `own_scripts` belong to `own`, all
/// other scripts to attacks. `attack_at` is the position of the attack to which the flows in
/// `attacks` belong. `most_flows` is the maximum number of flows per worker and port.
fn sides(
    (own, own_scripts): (Option<&Flows>, u8),
    (attacks, attack_at): (Option<&Flows>, Option<At>),
    load: &Load,
    most_flows: u32,
    limits: &[PortLimits],
    mistakes: &mut ErrorCollector<'_>,
) -> Vec<FlowSide> {
    let begins = |pair: u16| {
        let own = |template: &&Template| u16::from(template.pair) + 1 == pair;
        let mut templates = load.templates.iter().filter(own);
        !load.scripts.is_empty() || templates.any(|one| !matches!(one.arrival, Arrival::None))
    };
    // Ethernet's MTU, or more if the largest configured segment needs it.
    let mss = load.templates.iter().flat_map(|t| [t.client_tunables.mss, t.server_tunables.mss]);
    let wanted = mss.map(|mss| u32::from(mss) + 40).fold(1500, u32::max);
    let mut sides: Vec<FlowSide> = Vec::new();
    let mut pairs: Vec<(&Flows, u16, Part)> = Vec::new();
    match (own, attacks) {
        (Some(own), attacks) => {
            // Only the first pair plays scripts.
            let of_own = if attacks.is_some() { own_scripts } else { !0 };
            pairs.extend((1..).zip(0..=own.pairs.len() as u8).map(|(number, bit)| {
                let scripts = if bit == 0 { of_own } else { 0 };
                (own, number, Part { scripts, ..Part::of_pair(bit) })
            }));
            let part = Part { scripts: !own_scripts, ..Part::NOTHING };
            pairs.extend(attacks.map(|attacks| (attacks, 1, part)));
        }
        (None, attacks) => pairs.extend(attacks.map(|all| (all, 1, Part::ALL))),
    }
    let of_attacks = |of: &Flows| own.is_some_and(|own| !std::ptr::eq(own, of));
    for (of, number, part) in pairs {
        let [clients, servers] = of.pair(number).unwrap_or([(None, &of.client_network); 2]);
        for ((port, spec), role, fallback) in
            [(clients, Role::Clients, CLIENT_MAC), (servers, Role::Servers, SERVER_MAC)]
        {
            let Some(port) = port else { continue };
            // If there are no clients, servers run until the end of the run.
            if role == Role::Clients && !begins(number) {
                continue;
            }
            if let Some(side) = sides.iter_mut().find(|side| side.port == port) {
                if of_attacks(of) && side.role != role && side.role != Role::Both {
                    let at = attack_at.unwrap_or_default();
                    let text = "attacks and flows have opposite directions: the port of the \
                                clients of one is the port of the servers of the other";
                    mistakes.at(at, text, "try exchanging port and port2, or live = false");
                }
                add_role(side, role, part);
                if *spec != squall_profile::Network::default() {
                    without_effect(spec, !of_attacks(of), mistakes);
                }
                continue;
            }
            let mac = limits[port].mac.unwrap_or(fallback);
            let mut network = network::network(spec, mac, mistakes);
            if spec.mtu.is_none() {
                let headers = network.longest_frame() - u32::from(network.mtu);
                let longest = limits[port].max_frame.saturating_sub(headers);
                network.mtu = longest.clamp(576, wanted) as u16;
            }
            let (clients, servers) = (Part::NOTHING, Part::NOTHING);
            let mut side = FlowSide { port, role, clients, servers, network, flows: most_flows };
            add_role(&mut side, role, part);
            sides.push(side);
        }
    }
    sides
}

/// Reports that the network `spec` of a port's second role has no effect: a port has a single
/// network, that of its first role.
fn without_effect(
    spec: &squall_profile::Network,
    of_flows: bool,
    mistakes: &mut ErrorCollector<'_>,
) {
    let words = spec.mac.iter().chain(&spec.next_hop).chain(&spec.gateway).chain(&spec.wrap);
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

/// The position in the profile of the template that an error names.
fn place_of(error: &squall_flows::LoadError, flows: &Flows) -> Option<At> {
    // A member of a mix has its template's name as prefix.
    let named = |spec: &&squall_profile::Template| {
        error
            .template()
            .and_then(|name| name.strip_prefix(&spec.name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    flows.templates.iter().filter(named).max_by_key(|spec| spec.name.len()).map(|spec| spec.at)
}

/// Adds `part` to the side's share in this role.
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

fn pool(
    spec: &squall_profile::Pool,
    profile: &Profile,
    routers: &[PlanRouter],
    notes: &mut Vec<String>,
    mistakes: &mut ErrorCollector<'_>,
) -> Pool {
    let groups = &profile.hosts[..];
    let mut ranges_of = |text: &Located| match text.routes() {
        Some(_) => in_routes(text, profile, routers, notes).unwrap_or_else(|mistake| {
            mistakes.add(mistake);
            Vec::new()
        }),
        None => match text.text.parse::<AddrRange>() {
            Ok(range) => vec![range],
            Err(error) => {
                mistakes.report(text, &error);
                Vec::new()
            }
        },
    };
    let (hosts, ranges) = match spec.hosts() {
        Some((name, at)) => {
            let hosts = hosts::group(spec, (name, at), groups, mistakes);
            (hosts, hosts.map(|number| hosts::range(groups, number)).into_iter().collect())
        }
        None => (None, spec.addresses.iter().flat_map(&mut ranges_of).collect()),
    };
    Pool {
        name: spec.name.clone(),
        ranges,
        hosts,
        ports: spec.ports.map_or(PORTS, |(first, last)| first..=last),
        order: match spec.order {
            squall_profile::Order::Sequential => Order::Sequential,
            squall_profile::Order::Random => Order::Random,
            squall_profile::Order::Hash => Order::Hash,
        },
        shared: spec.shared,
    }
}

/// The addresses in the routes that a text names. Routes of which one is in the other may have the
/// same host, which a pool has once.
fn in_routes(
    text: &Located,
    profile: &Profile,
    routers: &[PlanRouter],
    notes: &mut Vec<String>,
) -> Result<Vec<AddrRange>, Diagnostic> {
    let Some(to) = stream_routes::named(text, None, profile, routers)? else {
        return Ok(Vec::new());
    };
    let mut known = HashSet::new();
    let (mut addresses, found) = to.addresses(text)?;
    notes.extend(found);
    addresses.retain(|address| known.insert(*address));
    Ok(addresses.into_iter().filter_map(|address| AddrRange::new(address, address)).collect())
}

/// Compiles a template, which may be a mix of several.
fn templates(
    spec: &squall_profile::Template,
    flows: &Flows,
    captures: &mut Captures<'_>,
    notes: &mut Vec<String>,
    mistakes: &mut ErrorCollector<'_>,
) -> Vec<Template> {
    let data = match spec.data.as_ref().map(|data| captures.data(data, mistakes)) {
        Some(None) => return Vec::new(),
        data => data.flatten(),
    };
    let Some(ends) = ends(spec, flows, data.as_ref(), captures, mistakes) else {
        return Vec::new();
    };
    no_effect(spec, flows, &ends, mistakes);
    // Each stream of a flow uses a record.
    let streams = spec.http.as_ref().map_or(1, |http| http.streams);
    let records = data.as_ref().and_then(Data::limit);
    let most = records.map(|records| records / u64::from(streams));
    if most.is_some() && spec.arrival == squall_profile::Arrival::Called {
        let text =
            format!("template {:?}: order = \"once\" has no effect beside called", spec.name);
        mistakes.at(spec.at, &text, "try order = \"circular\" or \"random\"");
    }
    if let (Some(data), Some(records), Some(most)) = (&spec.data, records, most) {
        let effect = match spec.limit {
            Some(limit) if limit < most => format!("limit = {limit} uses {limit} of them"),
            _ => format!("at most {most} flows begin"),
        };
        let one = if streams > 1 { "stream of a flow" } else { "flow" };
        notes.push(format!(
            "template {:?}: {} has {records} records, each for one {one}: {effect}",
            spec.name, data.file.text
        ));
    }
    let limit = spec.limit.into_iter().chain(most).min();
    let client_tunables = tunables::of_side(&spec.tcp, &spec.client_tcp, mistakes);
    let server_tunables = tunables::of_side(&spec.tcp, &spec.server_tcp, mistakes);
    let from = (data.as_ref(), captures.assets);
    let tls = tls::tls(spec, spec.plays_servers(flows), from, mistakes);
    if let Some(http) = spec.http.as_ref().filter(|http| http.fallback) {
        check_fallback(spec, http, tls.is_some(), &ends, mistakes);
    }
    let proxy = proxy::proxy(spec, flows, mistakes);
    let shape = stages(spec, mistakes);
    let http3 = tls::is_http3(spec);
    let (several, shares) = (ends.len() > 1, ends.iter().map(|(share, ..)| share).sum());
    // With TLS, the default port of HTTP becomes that of HTTPS.
    let usual = |port: u16| if port == 80 && tls.is_some() { 443 } else { port };
    let template = |(share, name, ends): (u32, String, Ends)| Template {
        name: if several { format!("{} {name}", spec.name) } else { spec.name.clone() },
        pair: (spec.pair - 1) as u8,
        clients: spec.clients,
        servers: spec.servers,
        port: spec.listen.filter(|_| !several).unwrap_or(usual(ends.port)),
        client: ends.client,
        server: ends.server,
        tls: tls.clone(),
        proxy: proxy.clone(),
        http: spec.http.as_ref().filter(|_| !http3).map(http2),
        http3: spec.http.as_ref().filter(|_| http3).map(|spec| Http3 {
            streams: spec.streams,
            window: spec.window,
            max_streams: spec.max_streams,
            qpack_table: spec.qpack_table,
            retry: spec.retry,
            reserved_version: spec.reserved_version,
            migrate_after: spec.migrate_after,
            migrate_to: match spec.migrate_to {
                squall_profile::MigrateTo::Port => MigrateTo::Port,
                squall_profile::MigrateTo::Address => MigrateTo::Address,
            },
            rebind_after: spec.rebind_after,
            forbid_migration: spec.forbid_migration,
            // The shorter one is that of the connection (RFC 9000 section 10.1); 0: never.
            idle: [client_tunables.udp_idle, server_tunables.udp_idle]
                .into_iter()
                .filter(|idle| *idle > Nanos::ZERO)
                .min()
                .unwrap_or(Nanos::ZERO),
        }),
        client_tunables: client_tunables.clone(),
        server_tunables: server_tunables.clone(),
        ends: match spec.play {
            squall_profile::Play::Both => PlayedEnds::Both,
            squall_profile::Play::Clients => PlayedEnds::Clients,
            squall_profile::Play::Servers => PlayedEnds::Servers,
        },
        arrival: arrival(spec.arrival, share, shares),
        limit: limit.map(|limit| (limit * u64::from(share)).div_ceil(u64::from(shares))),
        start: spec.start,
        duration: spec.duration,
        waits: spec.after.is_some(),
        shape: shape.clone(),
        gone: false,
        joined: false,
    };
    ends.into_iter().map(template).collect()
}

/// The settings of HTTP/2.
fn http2(spec: &squall_profile::Http) -> Http2 {
    let &squall_profile::Http { streams, window, header_table, max_streams, fallback, .. } = spec;
    Http2 { streams, window, header_table, max_streams, fallback }
}

/// Reports what prevents connections from using HTTP/1.1 in place of HTTP/2.
fn check_fallback(
    spec: &squall_profile::Template,
    http: &squall_profile::Http,
    tls: bool,
    ends: &[(u32, String, Ends)],
    mistakes: &mut ErrorCollector<'_>,
) {
    let name = &spec.name;
    if !tls && spec.tls.is_none() {
        let text = format!("template {name:?}: without TLS, no end can choose HTTP/1.1");
        mistakes.at(spec.at, &text, "try tls = true, or http = \"2\"");
    }
    if http.streams > 1 && ends.iter().any(|(.., ends)| ends.client.uses_websocket()) {
        let text = format!(
            "template {name:?}: a connection of HTTP/1.1 cannot carry WebSocket for {} streams",
            http.streams
        );
        mistakes.at(spec.at, &text, "try streams = 1, or leaving out the fallback to HTTP/1.1");
    }
}

/// Reports templates whose connections are to move to another address of a pool that has only one.
fn check_moves(flows: &Flows, load: &Load, mistakes: &mut ErrorCollector<'_>) {
    for spec in flows.templates.iter().filter(|spec| spec.plays_clients(flows)) {
        let to = spec.http.as_ref().map(|http| http.migrate_to);
        let ranges = load.clients.get(spec.clients).map_or(&[][..], |pool| &pool.ranges);
        if to == Some(squall_profile::MigrateTo::Address)
            && let [range] = ranges
            && range.first() == range.last()
        {
            let text = format!(
                "template {:?}: migrate_to = \"address\", but its clients have one address",
                spec.name
            );
            let hint = "try clients with more addresses, or migrate_to = \"port\"";
            mistakes.at(spec.at, &text, hint);
        }
    }
}

/// Reports keys of a template that have no effect.
fn no_effect(
    spec: &squall_profile::Template,
    flows: &Flows,
    ends: &[(u32, String, Ends)],
    mistakes: &mut ErrorCollector<'_>,
) {
    let name = &spec.name;
    let http3 = tls::is_http3(spec);
    let of = |ends: &Ends| if http3 { Transport::Udp } else { ends.client.transport };
    let over = |transport: Transport| ends.iter().all(|(.., ends)| of(ends) == transport);
    if let (Some(port), [_, _, ..]) = (spec.listen, ends) {
        let text = format!("template {name:?}: listen = {port} has no effect on a mix");
        mistakes.at(
            spec.at,
            &text,
            "each application of a mix has its own port: try one template per application",
        );
    }
    if let Some(http) = &spec.http
        && u32::from(http.streams) > http.max_streams
        && spec.plays_clients(flows)
        && spec.plays_servers(flows)
    {
        let squall_profile::Http { streams, max_streams, .. } = http;
        let text = format!(
            "template {name:?}: streams = {streams} of a client are more than max_streams = \
             {max_streams} of its server"
        );
        mistakes.at(spec.at, &text, &format!("try max_streams = {streams}, or fewer streams"));
    }
    if let Some(data) = &spec.data
        && !ends.iter().any(|(.., ends)| ends.client.uses_data() || ends.server.uses_data())
        && !tls::uses_data(spec)
    {
        let text = format!("template {name:?}: data has no effect: no message uses a column");
        let hint =
            "try ${data:COLUMN} in a message, or in url, header or content of app = \"http\"";
        mistakes.note(&data.file, &text, hint);
    }
    if spec.transport == squall_profile::Transport::Udp
        && !matches!(spec.content, FlowContent::Programs { .. })
        && !over(Transport::Udp)
    {
        let text = format!("template {name:?}: transport = \"udp\" has no effect");
        mistakes.at(spec.at, &text, "applications and captures have their own transport");
    }
    let sides = [&spec.tcp, &spec.client_tcp, &spec.server_tcp];
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
    let random = match (spec.arrival, flows.target) {
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
        mistakes.at(spec.at, &text, hint);
    }
}

/// The load shape of all templates together.
fn ramp(spec: squall_profile::Ramp, mistakes: &mut ErrorCollector<'_>) -> Shape {
    let shape = Shape::ramp(spec.up, spec.hold, spec.down);
    shape.unwrap_or_else(|error| {
        let text = match error {
            ShapeError::TooLong(_) => "ramp_up and ramp_down take at most 24 h each",
            ShapeError::Nothing | ShapeError::Endless => "ramp_up, hold and ramp_down have no time",
        };
        mistakes.at(At::default(), text, "try ramp_up = \"10 s\", hold = \"1 min\"");
        Shape::default()
    })
}

/// The load shape of one template.
fn stages(spec: &squall_profile::Template, mistakes: &mut ErrorCollector<'_>) -> Option<Shape> {
    let full = match spec.arrival {
        squall_profile::Arrival::Cps { cps, .. } => cps,
        squall_profile::Arrival::Users { users, .. } => users.into(),
        squall_profile::Arrival::Weight { .. }
        | squall_profile::Arrival::Called
        | squall_profile::Arrival::None => return None,
    };
    if spec.stages.is_empty() {
        return None;
    }
    // Levels have the same precision as flow rates.
    let level = |level: f64| (level * 1e6).round() as u64;
    let stage =
        |stage: &squall_profile::Stage<f64>| Stage { lasts: stage.lasts, to: level(stage.to) };
    let stages: Vec<_> = spec.stages.iter().map(stage).collect();
    match Shape::new(&stages, level(full)) {
        Ok(shape) => Some(shape),
        Err(_) => {
            let text = format!("template {:?}: its stages never reach a level above 0", spec.name);
            mistakes.at(spec.at, &text, "try [{ duration = \"10 s\", to = 500 }]");
            None
        }
    }
}

/// The arrivals of share number `share`, if a template's arrivals are divided into `shares` equal
/// shares.
fn arrival(spec: squall_profile::Arrival, share: u32, shares: u32) -> Arrival {
    let spacing = |spec| match spec {
        squall_profile::Spacing::Poisson => Spacing::Poisson,
        squall_profile::Spacing::Constant => Spacing::Constant,
    };
    match spec {
        squall_profile::Arrival::Cps { cps, spacing: spec } => {
            let cps = Cps::from_f64(cps * f64::from(share) / f64::from(shares));
            Arrival::Open { cps, spacing: spacing(spec) }
        }
        squall_profile::Arrival::Weight { weight, spacing: spec } => {
            Arrival::Weight { weight: weight.saturating_mul(share), spacing: spacing(spec) }
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

/// Captures by name and handling of delays, and data tables. Each is read only once for all
/// templates.
struct Captures<'a> {
    assets: &'a dyn Assets,
    read: Vec<(String, squall_profile::Delays, Result<Import, String>)>,
    tables: Vec<(String, Data)>,
}

/// Programs of both ends of a flow, and the port of the servers.
struct Ends {
    client: Program,
    server: Program,
    port: u16,
}

fn ends(
    spec: &squall_profile::Template,
    flows: &Flows,
    data: Option<&Data>,
    captures: &mut Captures<'_>,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Vec<(u32, String, Ends)>> {
    let name = spec.name.as_str();
    let transport = match spec.transport {
        squall_profile::Transport::Udp => Transport::Udp,
        squall_profile::Transport::Tcp => Transport::Tcp,
    };
    match &spec.content {
        FlowContent::Programs { client, server, messages } => {
            let mut named = BTreeMap::new();
            for (message, text) in messages {
                let parsed = text.text.parse::<Message>().and_then(|parsed| match data {
                    Some(data) => parsed.with_data(data),
                    None => Ok(parsed),
                });
                match parsed {
                    Ok(parsed) => drop(named.insert(message.clone(), parsed)),
                    Err(error) => mistakes.report(text, &error),
                }
            }
            if (client.is_empty() && spec.plays_clients(flows))
                || (server.is_empty() && spec.plays_servers(flows))
            {
                let side = if client.is_empty() { "client" } else { "server" };
                let nowhere = Located { text: String::new(), at: spec.at };
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
            let http = spec.http.as_ref().map(|http| http.version);
            let mut program = |role, lines: &[Located]| {
                program(name, (role, transport, http), lines, (&named, data), mistakes)
            };
            let client = program(ProgramRole::Client, client);
            let server = program(ProgramRole::Server, server);
            Some(vec![(
                1,
                spec.name.clone(),
                Ends { client: client?, server: server?, port: spec.listen? },
            )])
        }
        FlowContent::App { app, options } => {
            let streams = spec.http.as_ref().map(|http| http.streams);
            let other =
                |http: &squall_profile::Http| http.version != HttpVersion::Two || http.fallback;
            if app.text == "grpc" && spec.http.as_ref().is_some_and(other) {
                mistakes.note(app, "gRPC is over HTTP/2 alone", "try http = \"2\"");
            }
            if spec.plays_servers(flows) {
                apps::check_server(app, options, mistakes);
            }
            apps::ends(app, options, (data, captures.assets), streams, mistakes)
        }
        FlowContent::Capture { path, number, delays } => {
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
                            spec.name.clone(),
                            Ends { client, server, port: spec.listen.unwrap_or(server_end.1) },
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
                    mistakes.report(path, &error);
                    None
                }
            }
        }
    }
}

impl Captures<'_> {
    /// Reads a data table. `None`: `mistakes` has the reason.
    fn data(
        &mut self,
        spec: &squall_profile::Data,
        mistakes: &mut ErrorCollector<'_>,
    ) -> Option<Data> {
        let path = &spec.file.text;
        let order = match spec.order {
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
                mistakes.note(&spec.file, &error, hint);
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

/// Converts the profile's delays to those of the flow library.
fn delays(spec: squall_profile::Delays) -> Delays {
    match spec {
        squall_profile::Delays::Keep => Delays::Keep,
        squall_profile::Delays::Drop => Delays::Drop,
        squall_profile::Delays::Scale(factor) => Delays::Scale(factor),
    }
}

/// Compiles a program. A side that is external needs no program and gets an empty one.
fn program(
    name: &str,
    (role, transport, http): (ProgramRole, Transport, Option<HttpVersion>),
    lines: &[Located],
    (messages, data): (&BTreeMap<String, Message>, Option<&Data>),
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Program> {
    let nothing = [Located::from("wait_peer_close")];
    let lines = if lines.is_empty() { &nothing } else { lines };
    let texts = lines.iter().map(|line| line.text.as_str());
    let checked = |program: Program| match http {
        Some(HttpVersion::Two) => program.check_over_http2().map(|()| program),
        Some(HttpVersion::Three) => program
            .check_without_http2()
            .and_then(|()| program.check_over_http3())
            .map(|()| program),
        None => program.check_without_http2().map(|()| program),
    };
    match Program::parse_with_data(name, role, transport, texts, messages.clone(), data)
        .and_then(checked)
    {
        Ok(program) => Some(program),
        Err(error) => {
            let line =
                error.instruction.checked_sub(1).and_then(|i| lines.get(i)).unwrap_or(&lines[0]);
            mistakes.report(line, &error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_http2_in_profiles_are_those_of_the_library() {
        assert_eq!(http2(&squall_profile::Http::default()), Http2::default());
    }
}
