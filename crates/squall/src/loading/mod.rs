//! Flows of a profile, compiled: programs from their text, pools from their addresses, rates to
//! fractions.
//!
//! What is wrong is told with its place in the profile, all mistakes at once.

mod apps;
pub mod import;
mod network;
mod planned;
mod report;
mod script;
mod tls;
mod tunables;

use std::{collections::BTreeMap, fmt::Display, path::Path, str::FromStr, sync::Arc};

use squall_apps::{
    Import, ImportOptions, Imported, Message, Program, Role as ProgramRole, Transport,
};
use squall_engine::{FlowSide, Flows as Played};
use squall_flows::{
    AddrRange, Arrival, Cps, Limits, Load, Order, PORTS, Pool, Ramp, Role, Spacing, Target,
    Template, Think,
};
use squall_port::PortFacts;
use squall_profile::{At, Diagnostic, Diagnostics, Flows, Profile, Said, Says};
use squall_tcp::Tunables;
use squall_units::{MacAddr, Nanos};

pub use apps::applications;
pub use planned::{PlannedLoad, PlannedPool, PlannedTemplate};
pub use report::{LastLoad, ended, report};

use crate::{Error, ports::ETHERNET_HEADER, report::load::ConversationsReport};

/// Locally administered, where an interface has no address of its own.
const CLIENT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// Compiles `flows` for the ports of `profile`, of which these are the facts; what they play is
/// `found`, or in the file that they name.
///
/// # Errors
/// [`Error::Input`], every mistake with its place.
pub fn compile(
    profile: &Profile,
    flows: &Flows,
    found: Option<Import>,
    facts: &[Option<&PortFacts>],
) -> Result<Loaded, Error> {
    let mut mistakes = Mistakes::of(profile);
    let mut pools: Vec<Pool> = flows.pools.iter().map(|said| pool(said, &mut mistakes)).collect();
    let mut captures = Captures::new();
    let all = flows
        .templates
        .iter()
        .flat_map(|said| templates(said, flows, &mut captures, &mut mistakes));
    let mut templates: Vec<Template> = all.collect();
    let (mut script, mut conversations) = (None, None);
    if let Some(said) = &flows.replay {
        if flows.clients.is_none() {
            let text = "the clients of a capture are played, and there is no port for them";
            mistakes.note(&said.capture, text, "name one in [flows]: clients = \"A\"");
        } else if let Some(played) = script::script(said, found, &mut mistakes) {
            (pools, templates) = (played.pools, played.templates);
            (script, conversations) =
                (Some(Arc::new(played.script)), Some((played.report, played.numbers)));
        }
    }
    let load = Load {
        servers: pools.clone(),
        clients: pools,
        templates,
        target: flows.target.map(target),
        ramp: Ramp { up: flows.ramp.up, hold: flows.ramp.hold, down: flows.ramp.down },
        limits: Limits {
            flows: flows.limit,
            duration: profile.stop.duration,
            active: flows.active_limit,
        },
        drain: flows.drain.unwrap_or(squall_flows::DRAIN),
        patience: flows.patience.unwrap_or(squall_flows::PATIENCE),
        seed: profile.seed,
        script,
    };
    let mut sides: Vec<FlowSide> = Vec::new();
    for (port, role, said, fallback) in [
        (flows.clients, Role::Clients, &flows.client_network, CLIENT_MAC),
        (flows.servers, Role::Servers, &flows.server_network, SERVER_MAC),
    ] {
        let Some(port) = port else { continue };
        if let Some(side) = sides.iter_mut().find(|side| side.port == port) {
            side.role = Role::Both;
            if *said != squall_profile::Network::default() {
                let words =
                    said.mac.iter().chain(&said.next_hop).chain(&said.gateway).chain(&said.wraps);
                let at = words.map(|word| word.at).next().unwrap_or_default();
                let hint =
                    "clients and servers on one port have one network: say it in client_network";
                mistakes.at(at, "server_network has no effect", hint);
            }
            continue;
        }
        let facts = facts.get(port).copied().flatten();
        let mtu = facts.map_or(1500, |facts| {
            facts.max_frame.saturating_sub(ETHERNET_HEADER).clamp(576, 1500) as u16
        });
        let mac = facts.and_then(|facts| facts.mac).unwrap_or(fallback);
        let network = network::network(said, mac, mtu, &mut mistakes);
        sides.push(FlowSide { port, role, network, flows: squall_flows::FLOWS });
    }
    let wrong = || {
        let of_side = sides.iter().find_map(|side| load.check(&side.network).err());
        of_side.or_else(|| flows.servers.and_then(|_| load.check_servers().err()))
    };
    if mistakes.found.is_empty()
        && let Some(error) = wrong()
    {
        // One of a mix has the name of its template in front.
        let named = |said: &&squall_profile::Template| {
            error
                .template()
                .and_then(|name| name.strip_prefix(&said.name))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let at = flows
            .templates
            .iter()
            .filter(named)
            .max_by_key(|said| said.name.len())
            .map(|said| said.at);
        mistakes.told(&Said { text: String::new(), at: at.unwrap_or_default() }, &error);
    }
    mistakes.check()?;
    Ok(Loaded { flows: Arc::new(Played { load, sides }), conversations })
}

/// Flows that are ready to be played.
#[derive(Debug)]
pub struct Loaded {
    pub flows: Arc<Played>,
    /// Of a capture that is played, what is known before; and of each conversation its number in
    /// the capture.
    pub conversations: Option<(ConversationsReport, Vec<u64>)>,
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
    captures: &mut Captures,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Template> {
    let Some(ends) = ends(said, flows, captures, mistakes) else { return Vec::new() };
    no_effect(said, flows, &ends, mistakes);
    let tunables = tunables::tunables(&said.tcp, Tunables::default(), mistakes);
    let tls = tls::tls(said, flows.servers.is_some(), mistakes);
    let (several, shares) = (ends.len() > 1, ends.iter().map(|(share, ..)| share).sum());
    // Where those who speak HTTP inside of TLS look for it.
    let usual = |port: u16| if port == 80 && tls.is_some() { 443 } else { port };
    let template = |(share, name, ends): (u32, String, Ends)| Template {
        name: if several { format!("{} {name}", said.name) } else { said.name.clone() },
        clients: said.clients,
        servers: said.servers,
        port: said.port.filter(|_| !several).unwrap_or(usual(ends.port)),
        client: ends.client,
        server: ends.server,
        tls: tls.clone(),
        client_tunables: tunables.clone(),
        server_tunables: tunables.clone(),
        arrival: arrival(said.arrival, share, shares),
        limit: said.limit.map(|limit| (limit * u64::from(share)).div_ceil(u64::from(shares))),
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
    if let (Some(port), [_, _, ..]) = (said.port, ends) {
        let text = format!("template {name:?}: port = {port} has no effect on a mix");
        mistakes.at(
            said.at,
            &text,
            "each of its applications has a port of its own: try a template for each",
        );
    }
    if said.udp && !matches!(said.says, Says::Programs { .. }) && !over(Transport::Udp) {
        let text = format!("template {name:?}: transport = \"udp\" has no effect");
        mistakes.at(
            said.at,
            &text,
            "what an application or a capture speaks, it speaks over its own transport",
        );
    }
    for (setting, value) in &said.tcp.settings {
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
            mistakes.note(value, &text, "leave it out");
        }
    }
    let random = match (said.arrival, flows.target) {
        (squall_profile::Arrival::Users { think, exponential, .. }, _) => {
            exponential && think == Nanos::ZERO
        }
        (
            squall_profile::Arrival::Weight { poisson, .. },
            Some(squall_profile::Target::Active(_)),
        ) => poisson,
        _ => false,
    };
    if random {
        let text = format!("template {name:?}: spacing = \"poisson\" has no effect");
        let hint =
            "a flow begins here when another has ended: try think = \"100 ms\" with users, or cps";
        mistakes.at(said.at, &text, hint);
    }
}

/// Its share of `shares` of a template's flows.
fn arrival(said: squall_profile::Arrival, share: u32, shares: u32) -> Arrival {
    let spacing = |poisson| if poisson { Spacing::Poisson } else { Spacing::Constant };
    match said {
        squall_profile::Arrival::Cps { cps, poisson } => {
            let cps = Cps::from_f64(cps * f64::from(share) / f64::from(shares));
            Arrival::Open { cps, spacing: spacing(poisson) }
        }
        squall_profile::Arrival::Weight { weight, poisson } => {
            Arrival::Weight { weight: weight.saturating_mul(share), spacing: spacing(poisson) }
        }
        squall_profile::Arrival::Users { users, think, exponential } => Arrival::Closed {
            users: (u64::from(users) * u64::from(share)).div_ceil(shares.into()) as u32,
            think: if exponential { Think::Exponential(think) } else { Think::Fixed(think) },
        },
        squall_profile::Arrival::None => Arrival::None,
    }
}

/// Captures that were read, by name and what becomes of delays: each is read once, however many
/// templates name it.
type Captures = Vec<(String, squall_profile::Delays, Result<Import, String>)>;

/// Programs of both ends of a flow, and the port on which servers wait for it.
struct Ends {
    client: Program,
    server: Program,
    port: u16,
}

fn ends(
    said: &squall_profile::Template,
    flows: &Flows,
    captures: &mut Captures,
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<(u32, String, Ends)>> {
    let name = said.name.as_str();
    let transport = if said.udp { Transport::Udp } else { Transport::Tcp };
    match &said.says {
        Says::Programs { client, server, messages } => {
            let mut named = BTreeMap::new();
            for (message, text) in messages {
                match text.text.parse::<Message>() {
                    Ok(parsed) => drop(named.insert(message.clone(), parsed)),
                    Err(error) => mistakes.told(text, &error),
                }
            }
            if (client.is_empty() && flows.clients.is_some())
                || (server.is_empty() && flows.servers.is_some())
            {
                let side = if client.is_empty() { "client" } else { "server" };
                let nowhere = Said { text: String::new(), at: said.at };
                let text = format!(
                    "template {name:?} has no instructions of the {side}, which is to run here"
                );
                mistakes.note(
                    &nowhere,
                    &text,
                    &format!("add {side} = [...], or leave out the port of {side}s in [flows]"),
                );
                return None;
            }
            let client = program(name, ProgramRole::Client, transport, client, &named, mistakes);
            let server = program(name, ProgramRole::Server, transport, server, &named, mistakes);
            Some(vec![(
                1,
                said.name.clone(),
                Ends { client: client?, server: server?, port: said.port? },
            )])
        }
        Says::App { app, options } => apps::ends(app, options, mistakes),
        Says::Capture { path, number, delays } => {
            match conversations(&path.text, *delays, captures) {
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
                            Ends { client, server, port: said.port.unwrap_or(server_end.1) },
                        )])
                    }
                    None => {
                        let all = found.conversations.len();
                        let text = format!("{} has no conversation {number}", path.text);
                        mistakes.note(path, &text, &format!("it has {all}, which count from 1"));
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

fn conversations<'a>(
    path: &str,
    delays: squall_profile::Delays,
    captures: &'a mut Captures,
) -> Result<&'a Import, &'a str> {
    let at = captures
        .iter()
        .position(|(of, with, _)| of == path && *with == delays)
        .unwrap_or_else(|| {
            let options =
                ImportOptions { delays: import::delays(delays), ..ImportOptions::default() };
            let read =
                import::conversations(Path::new(path), &options).map_err(|error| error.to_string());
            captures.push((path.to_owned(), delays, read));
            captures.len() - 1
        });
    captures[at].2.as_ref().map_err(String::as_str)
}

/// Of a side that somebody else plays nothing is said: a program that does nothing stands for it.
fn program(
    name: &str,
    role: ProgramRole,
    transport: Transport,
    lines: &[Said],
    messages: &BTreeMap<String, Message>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Program> {
    let nothing = [Said::from("wait_peer_close")];
    let lines = if lines.is_empty() { &nothing } else { lines };
    let texts = lines.iter().map(|line| line.text.as_str());
    match Program::parse(name, role, transport, texts, messages.clone()) {
        Ok(program) => Some(program),
        Err(error) => {
            let line =
                error.instruction.checked_sub(1).and_then(|i| lines.get(i)).unwrap_or(&lines[0]);
            mistakes.told(line, &error);
            None
        }
    }
}

/// What is wrong with a profile's flows, with its places.
pub struct Mistakes<'a> {
    origin: &'a str,
    found: Vec<Diagnostic>,
}

impl<'a> Mistakes<'a> {
    pub fn of(profile: &'a Profile) -> Self {
        Self { origin: &profile.origin, found: Vec::new() }
    }

    /// # Errors
    /// [`Error::Input`] with all of them, if there are any.
    pub fn check(self) -> Result<(), Error> {
        if self.found.is_empty() { Ok(()) } else { Err(Error::Input(Diagnostics(self.found))) }
    }

    pub fn note(&mut self, said: &Said, message: &str, hint: &str) {
        self.at(said.at, message, hint);
    }

    pub fn at(&mut self, at: At, message: &str, hint: &str) {
        let details = if hint.is_empty() { Vec::new() } else { vec![hint.to_owned()] };
        let mut diagnostic = Diagnostic::at(at, message.to_owned(), details);
        diagnostic.origin = self.origin.to_owned();
        self.found.push(diagnostic);
    }

    /// An error whose first line says what is wrong, and the rest what to try.
    pub fn told(&mut self, said: &Said, error: &dyn Display) {
        let text = error.to_string();
        let (message, details) = text.split_once('\n').unwrap_or((&text, ""));
        self.note(said, message, details.trim());
    }

    pub fn parsed<T: FromStr>(&mut self, said: &Said, what: &str, example: &str) -> Option<T> {
        let parsed = said.text.parse().ok();
        if parsed.is_none() {
            self.note(said, &format!("{:?} is not {what}", said.text), &format!("try {example}"));
        }
        parsed
    }

    fn number<T: FromStr>(&mut self, said: &Said, to: &mut T) {
        if let Some(number) = self.parsed(said, "a number that fits", "10") {
            *to = number;
        }
    }

    fn truth(&mut self, said: &Said, to: &mut bool) {
        if let Some(truth) = self.parsed(said, "true or false", "true") {
            *to = truth;
        }
    }
}
