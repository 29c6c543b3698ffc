//! Flows of a profile, compiled: programs from their text, pools from their addresses, rates to fractions.
//!
//! What is wrong is told with its place in the profile, all mistakes at once.

mod network;
mod tunables;

use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use squall_apps::{Message, Program, Role, Transport};
use squall_flows::{AddrRange, Arrival, Cps, Limits, Load, Network, Order, PORTS, Pool, Ramp, Spacing, Target, Template, Think};
use squall_port::PortFacts;
use squall_profile::{Diagnostic, Diagnostics, Flows, Profile, Said, Says};
use squall_tcp::{FlowKind, Tunables};
use squall_units::{MacAddr, Nanos};

use crate::Error;

/// A load, and where it runs.
#[derive(Clone, Debug)]
pub struct Loading {
    pub load: Load,
    /// Templates name them by number.
    pub programs: Vec<Program>,
    /// Ports of the profile: clients, servers.
    pub clients: Option<usize>,
    pub servers: Option<usize>,
    pub client_network: Network,
    pub server_network: Network,
}

/// Locally administered, where an interface has no address of its own.
const CLIENT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Around a packet: Ethernet's header.
const ETHERNET_HEADER: u32 = 14;

/// Compiles the flows of `profile` for ports with these `facts`.
///
/// # Errors
/// [`Error::Input`], every mistake with its place.
pub fn compile(profile: &Profile, flows: &Flows, facts: &[&PortFacts]) -> Result<Loading, Error> {
    let mut mistakes = Mistakes { origin: &profile.origin, found: Vec::new() };
    let mut programs = Vec::new();
    let clients: Vec<Pool> = flows.pools.iter().map(|said| pool(said, &mut mistakes)).collect();
    let templates = flows.templates.iter().filter_map(|said| template(said, flows, &mut programs, &mut mistakes)).collect();
    let side = |said, port: Option<usize>, fallback, mistakes: &mut Mistakes<'_>| {
        let facts = port.and_then(|port| facts.get(port));
        let mtu = facts.map_or(1500, |facts| facts.max_frame.saturating_sub(ETHERNET_HEADER).clamp(576, 1500) as u16);
        network::network(said, facts.and_then(|facts| facts.mac), fallback, mtu, mistakes)
    };
    let client_network = side(&flows.client_network, flows.clients, CLIENT_MAC, &mut mistakes);
    let server_network = side(&flows.server_network, flows.servers, SERVER_MAC, &mut mistakes);
    let load = Load {
        servers: clients.clone(),
        clients,
        templates,
        target: flows.target.map(target),
        ramp: Ramp { up: flows.ramp.up, hold: flows.ramp.hold, down: flows.ramp.down },
        limits: Limits { flows: flows.limit, duration: profile.stop.duration, active: flows.active_limit },
        drain: flows.drain.unwrap_or(squall_flows::DRAIN),
        patience: flows.patience.unwrap_or(squall_flows::PATIENCE),
        seed: profile.seed,
    };
    if mistakes.found.is_empty() {
        for network in [&client_network, &server_network] {
            if let Err(error) = load.check(network) {
                mistakes.note(&Said::default(), &error.to_string(), "");
                break;
            }
        }
    }
    if !mistakes.found.is_empty() {
        return Err(Error::Input(Diagnostics(mistakes.found)));
    }
    Ok(Loading { load, programs, clients: flows.clients, servers: flows.servers, client_network, server_network })
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

fn template(
    said: &squall_profile::Template,
    flows: &Flows,
    programs: &mut Vec<Program>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Template> {
    let Ends { client, server, port } = ends(said, flows, mistakes)?;
    let kind = match client.transport {
        Transport::Tcp => FlowKind::Tcp,
        Transport::Udp => FlowKind::Udp,
    };
    let number = programs.len();
    programs.extend([client, server]);
    let tunables = tunables::tunables(&said.tcp, Tunables::default(), mistakes);
    let spacing = |poisson| if poisson { Spacing::Poisson } else { Spacing::Constant };
    Some(Template {
        name: said.name.clone(),
        kind,
        clients: said.clients,
        servers: said.servers,
        port,
        client_program: number,
        server_program: number + 1,
        client_tunables: tunables.clone(),
        server_tunables: tunables,
        arrival: match said.arrival {
            squall_profile::Arrival::Cps { cps, poisson } => {
                Arrival::Open { cps: Cps::from_f64(cps), spacing: spacing(poisson) }
            }
            squall_profile::Arrival::Weight { weight, poisson } => Arrival::Weight { weight, spacing: spacing(poisson) },
            squall_profile::Arrival::Users { users, think, exponential } => Arrival::Closed {
                users,
                think: if exponential { Think::Exponential(think) } else { Think::Fixed(think) },
            },
            squall_profile::Arrival::None => Arrival::None,
        },
        limit: said.limit,
    })
}

/// Programs of both ends of a flow, and the port on which servers wait for it.
struct Ends {
    client: Program,
    server: Program,
    port: u16,
}

fn ends(said: &squall_profile::Template, flows: &Flows, mistakes: &mut Mistakes<'_>) -> Option<Ends> {
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
            if (client.is_empty() && flows.clients.is_some()) || (server.is_empty() && flows.servers.is_some()) {
                let side = if client.is_empty() { "client" } else { "server" };
                let nowhere = Said { text: String::new(), at: said.at };
                let text = format!("template {name:?} has no instructions of the {side}, which is to run here");
                mistakes.note(&nowhere, &text, &format!("add {side} = [...], or leave out the port of {side}s in [flows]"));
                return None;
            }
            let client = program(name, Role::Client, transport, client, &named, mistakes);
            let server = program(name, Role::Server, transport, server, &named, mistakes);
            Some(Ends { client: client?, server: server?, port: said.port? })
        }
        Says::App { app, options } => None,
        Says::Capture { path, number, delays } => None,
    }
}

/// Of a side that somebody else plays nothing is said: a program that does nothing stands for it.
fn program(
    name: &str,
    role: Role,
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
            let line = error.instruction.checked_sub(1).and_then(|i| lines.get(i)).unwrap_or(&lines[0]);
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

impl Mistakes<'_> {
    fn note(&mut self, said: &Said, message: &str, hint: &str) {
        let details = if hint.is_empty() { Vec::new() } else { vec![hint.to_owned()] };
        let mut diagnostic = Diagnostic::at(said.at, message.to_owned(), details);
        diagnostic.origin = self.origin.to_owned();
        self.found.push(diagnostic);
    }

    /// An error whose first line says what is wrong, and the rest what to try.
    fn told(&mut self, said: &Said, error: &dyn Display) {
        let text = error.to_string();
        let (message, details) = text.split_once('\n').unwrap_or((&text, ""));
        self.note(said, message, details.trim());
    }

    fn parsed<T: FromStr>(&mut self, said: &Said, what: &str, example: &str) -> Option<T> {
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
