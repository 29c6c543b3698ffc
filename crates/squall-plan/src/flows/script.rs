//! Converts the conversations in a capture to a script, and reports those that cannot be played.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::{IpAddr, SocketAddr},
};

use squall_apps::{
    Delay, Delays, Holes, Import, ImportOptions, Imported, Instruction, MessageRef, Part, Program,
    Role, Transport,
};
use squall_flows::{
    AddrRange, Arrival, Conversation, Order, PORTS, Pool, Script, Template, Tuples,
};
use squall_profile::{Begin, Conversations, ErrorCollector, Incomplete, Located};
use squall_report::report::flows::{ConversationNote, ConversationsReport, KindReport};
use squall_tcp::Tunables;
use squall_units::Nanos;

use super::tunables;
use crate::Assets;

/// The hosts that are the clients of a script.
pub struct ScriptHosts {
    /// Number of the group, and the addresses that are replaced by those of its hosts.
    pub group: usize,
    pub range: AddrRange,
    /// By position in the import: conversations with the same number have the same host.
    pub parties: Vec<u32>,
}

/// The part of a capture that can be played.
pub struct Played {
    pub pools: Vec<Pool>,
    /// The kinds of conversations, which are counted separately.
    pub templates: Vec<Template>,
    pub script: Script,
    /// Facts that are known before the run.
    pub report: ConversationsReport,
    /// The number in the capture of each played conversation (1-based).
    pub numbers: Vec<u64>,
}

impl Played {
    /// Appends the pools and templates to `pools` and `templates`, and renumbers the script
    /// accordingly.
    pub fn append_to(
        self,
        pools: &mut Vec<Pool>,
        templates: &mut Vec<Template>,
    ) -> (Script, ConversationsReport, Vec<u64>) {
        let Self { pools: own, templates: kinds, mut script, mut report, numbers } = self;
        script.first = templates.len();
        for conversation in &mut script.conversations {
            conversation.template += templates.len();
        }
        for (kind, counted) in kinds.into_iter().zip(&mut report.kinds) {
            // Names must be unique, because they identify templates.
            while templates.iter().any(|template| template.name == counted.name) {
                counted.name += " of attacks";
            }
            templates.push(Template {
                name: counted.name.clone(),
                clients: kind.clients + pools.len(),
                servers: kind.servers + pools.len(),
                ..kind
            });
        }
        pools.extend(own);
        (script, report, numbers)
    }
}

/// Addresses and ports of a client and its server that occur in both scripts. Servers could not
/// distinguish such conversations.
pub fn same_ends(one: &Script, other: &Script) -> Option<String> {
    let ends = |of: &Conversation| (of.client.transport, of.client_end, of.server_end);
    let known: HashSet<_> = one.conversations.iter().map(ends).collect();
    let both = other.conversations.iter().find(|conversation| known.contains(&ends(conversation)));
    both.map(|of| ends_text(of.client.transport, of.client_end, of.server_end))
}

/// The default time without data after which a conversation fails.
const WITHIN: Nanos = Nanos(10_000_000_000);
/// Maximum number of conversations. Each has its own program on each side, as do the placeholders
/// for kinds, and program numbers have 16 bits.
const MOST: usize = 65_000;
/// Maximum number of kinds that are counted separately. The others are counted as one kind.
const KINDS: usize = 32;
/// Maximum number of skipped conversations that notes name.
const NAMED: usize = 20;

/// Makes the script from the conversations in `found`, or if there are none from those in the
/// capture. `hosts` are their clients, if these are hosts. `None`: `mistakes` has the reason.
pub fn script(
    spec: &Conversations,
    (found, hosts): (Option<Import>, Option<&ScriptHosts>),
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Played> {
    // Times of conversations in `found` count from the start of the run, not from that of a
    // capture.
    let mut first = found.is_some().then_some(0);
    let import = match found {
        Some(import) => import,
        None => read(spec, assets, mistakes)?,
    };
    let tunables = tunables::tunables(&spec.tcp, Tunables::default(), mistakes);
    let mut addresses = Addresses::new(spec, mistakes)?;
    let mut report = ConversationsReport {
        capture: spec.capture.text.clone(),
        packets: import.packets,
        found: import.conversations.len() as u64,
        loops: (spec.loops > 0).then_some(spec.loops),
        packets_left_out: import.left_out.iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        ..ConversationsReport::default()
    };
    let both =
        |one: &Imported| one.report.of_client.packets > 0 && one.report.of_server.packets > 0;
    let some_have_both = import.conversations.iter().any(both);
    let lacks_one =
        |one: &&Imported| !both(one) && (one.client.transport == Transport::Tcp || !some_have_both);
    report.one_sided = import.conversations.iter().filter(lacks_one).count() as u64;
    let mut found: Vec<(usize, Imported)> = (1..).zip(import.conversations).collect();
    found.sort_by_key(|(_, one)| one.report.begin_ns);
    let mut conversations: Vec<Conversation> = Vec::with_capacity(found.len());
    let mut numbers = Vec::with_capacity(found.len());
    let mut end = Nanos::ZERO;
    for (number, one) in found {
        let note = |why: &str| ConversationNote {
            number: number as u64,
            flow: ends_text(one.client.transport, one.client_end, one.server_end),
            reason: why.to_owned(),
        };
        let ends = match incomplete(spec.incomplete, &one) {
            Some(why) => Err(why),
            None => addresses.of(&one),
        };
        let (client_end, server_end) = match ends {
            Ok(ends) => ends,
            Err(why) => {
                *report.not_played.entry(why.to_owned()).or_default() += 1;
                if report.not_played_first.len() < NAMED {
                    report.not_played_first.push(note(why));
                }
                continue;
            }
        };
        let since = one.report.begin_ns - *first.get_or_insert(one.report.begin_ns);
        let begin = match spec.begin {
            Begin::Captured(factor) => Nanos((since as f64 / factor) as u64),
            Begin::Cps(cps) => Nanos((conversations.len() as f64 * 1e9 / cps) as u64),
            Begin::Top => Nanos::ZERO,
        };
        end = end.max(begin);
        numbers.push(number as u64);
        let (client, server) = with_timeouts(one.client, one.server, spec.within.unwrap_or(WITHIN));
        conversations.push(Conversation {
            begin,
            template: 0,
            client,
            server,
            client_end,
            server_end,
            party: hosts.and_then(|hosts| hosts.parties.get(number - 1).copied()),
        });
    }
    if conversations.is_empty() {
        let why: Vec<_> = report.not_played.iter().map(|(why, n)| format!("{n} {why}")).collect();
        let text = match &why[..] {
            [] => format!("{} has no TCP or UDP conversation", spec.capture.text),
            why => format!(
                "{} has no conversation that can be played: {}",
                spec.capture.text,
                why.join(", ")
            ),
        };
        mistakes.note(
            &spec.capture,
            &text,
            "try squall info to list the conversations, or incomplete = \"cut\"",
        );
        return None;
    }
    let (pools, of) = addresses.pools(&conversations, hosts, mistakes)?;
    let templates = kinds(&mut conversations, of, &tunables, &mut report);
    report.playable = conversations.len() as u64;
    let script = Script {
        first: 0,
        conversations,
        loops: (spec.loops > 0).then_some(spec.loops),
        period: Nanos(end.0.saturating_add(spec.loop_delay.0)),
        at_once: spec.at_once,
    };
    Some(Played { pools, templates, script, report, numbers })
}

fn read(
    spec: &Conversations,
    assets: &dyn Assets,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Import> {
    let delays = match (spec.delays, spec.begin) {
        (Some(delays), _) => super::delays(delays),
        (None, Begin::Top) => Delays::Drop,
        (None, Begin::Captured(factor)) if factor != 1.0 => Delays::Scale(1.0 / factor),
        (None, _) => Delays::Keep,
    };
    let within = spec.within.unwrap_or(WITHIN);
    let default = ImportOptions::default();
    let options = ImportOptions {
        delays,
        shortest_delay: spec.shortest_delay.unwrap_or(default.shortest_delay),
        holes: if spec.incomplete == Incomplete::Zeros { Holes::Zeros } else { Holes::Cut },
        udp_within: (within > Nanos::ZERO).then_some(within),
        most_conversations: MOST,
        ..default
    };
    let filter = spec.filter.as_ref().map(|filter| filter.text.as_str());
    match assets.conversations(&spec.capture.text, filter, &options) {
        Ok(import) => Some(import),
        Err(error) => {
            mistakes.report(&spec.capture, &error);
            None
        }
    }
}

/// The reason why a conversation is skipped.
fn incomplete(what: Incomplete, one: &Imported) -> Option<&'static str> {
    match what {
        Incomplete::Skip if one.client.transport == Transport::Tcp && !one.report.handshake => {
            Some("mid_stream")
        }
        Incomplete::Skip if !one.report.holes.is_empty() => Some("holes"),
        _ => None,
    }
}

/// Formats the two ends.
pub fn ends_text(transport: Transport, client: (IpAddr, u16), server: (IpAddr, u16)) -> String {
    let ends = [client, server].map(|(address, port)| SocketAddr::new(address, port));
    format!("{} {} > {}", transport_name(transport), ends[0], ends[1])
}

fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    }
}

/// Adds timeouts, because a peer may behave unlike the one in the capture and never send the
/// expected data.
fn with_timeouts(mut client: Program, mut server: Program, within: Nanos) -> (Program, Program) {
    if within > Nanos::ZERO && client.transport == Transport::Tcp {
        let (of_client, of_server) = (longest_pause(&client), longest_pause(&server));
        for (program, pause) in [(&mut client, of_server), (&mut server, of_client)] {
            if !matches!(
                program.instructions[..],
                [] | [Instruction::Connect | Instruction::Accept, ..]
            ) {
                let time = Nanos(within.0.saturating_add(pause).min(86_400 * 1_000_000_000));
                program.instructions.insert(0, Instruction::Keepalive(time));
            }
        }
    }
    (client, server)
}

/// The longest total delay of a side between two sends.
fn longest_pause(program: &Program) -> u64 {
    let (mut pause, mut longest) = (0u64, 0);
    for instruction in &program.instructions {
        match instruction {
            Instruction::Delay(Delay::Fixed(time)) => pause = pause.saturating_add(time.0),
            Instruction::Send(_) | Instruction::Close => pause = 0,
            _ => {}
        }
        longest = longest.max(pause);
    }
    longest
}

/// Maps captured addresses to their replacements.
struct Addresses {
    /// Pools of replacement addresses for IPv4 and IPv6; `None`: clients keep the captured
    /// addresses.
    clients: Option<[Option<Tuples>; 2]>,
    server: Option<(IpAddr, Option<u16>)>,
    /// Replacements so far, by captured address and whether the server has IPv6.
    met: HashMap<(IpAddr, bool), IpAddr>,
    /// Assigned ends, each with the captured ends to which it was assigned.
    taken: HashMap<Ends, Ends>,
    /// For each address, the port at which the search for a free port continues.
    next: HashMap<IpAddr, u16>,
    place: Located,
}

/// An address and a port.
type End = (IpAddr, u16);
/// Client, server, and whether it is UDP.
type Ends = (End, End, bool);

impl Addresses {
    fn new(spec: &Conversations, mistakes: &mut ErrorCollector<'_>) -> Option<Self> {
        let server = match &spec.server {
            None => None,
            Some(spec) => {
                let whole = spec.text.parse::<SocketAddr>().map(|end| (end.ip(), Some(end.port())));
                let address =
                    spec.text.trim_matches(['[', ']']).parse().map(|address| (address, None));
                let Ok(server) = whole.or(address) else {
                    let message = format!("server = {:?} is not an address", spec.text);
                    mistakes.note(
                        spec,
                        &message,
                        "expected \"10.0.0.2\", \"10.0.0.2:8080\" or \"[fd00::2]:80\"",
                    );
                    return None;
                };
                Some(server)
            }
        };
        let clients = match &spec.clients[..] {
            [] => None,
            texts => {
                let mut ranges = [Vec::new(), Vec::new()];
                for text in texts {
                    match text.text.parse::<AddrRange>() {
                        Ok(range) => ranges[usize::from(range.first().is_ipv6())].push(range),
                        Err(error) => mistakes.report(text, &error),
                    }
                }
                let mut tuples = |ranges: Vec<AddrRange>| {
                    let pool = Pool {
                        name: "clients".into(),
                        ranges,
                        ports: PORTS,
                        order: Order::Sequential,
                        hosts: None,
                        shared: false,
                    };
                    (!pool.ranges.is_empty()).then(|| Tuples::new(&pool, 0)).and_then(|made| {
                        match made {
                            Ok(made) => Some(made),
                            Err(error) => {
                                mistakes.report(&texts[0], &error);
                                None
                            }
                        }
                    })
                };
                Some(ranges.map(&mut tuples))
            }
        };
        Some(Self {
            clients,
            server,
            met: HashMap::new(),
            taken: HashMap::new(),
            next: HashMap::new(),
            place: spec.clients.first().or(spec.server.as_ref()).unwrap_or(&spec.capture).clone(),
        })
    }

    /// The ends to use for client and server of a conversation.
    fn of(&mut self, one: &Imported) -> Result<(End, End), &'static str> {
        let udp = one.client.transport == Transport::Udp;
        let captured = (one.client_end, one.server_end, udp);
        let server = match self.server {
            Some((address, port)) => (address, port.unwrap_or(one.server_end.1)),
            None => one.server_end,
        };
        let client =
            self.client(one.client_end.0, server.0.is_ipv6()).ok_or("no_client_address")?;
        if client.is_ipv6() != server.0.is_ipv6() {
            return Err("other_family");
        }
        let mut port = one.client_end.1;
        // Two captured clients may map to the same address; then the later one gets another port.
        for _ in 0..=u16::MAX {
            match self.taken.entry(((client, port), server, udp)) {
                std::collections::hash_map::Entry::Occupied(entry) if *entry.get() != captured => {
                    let next = self.next.entry(client).or_insert(*PORTS.start());
                    port = *next;
                    *next = if port == u16::MAX { *PORTS.start() } else { port + 1 };
                }
                entry => {
                    entry.or_insert(captured);
                    return Ok(((client, port), server));
                }
            }
        }
        Err("no_free_port")
    }

    fn client(&mut self, captured: IpAddr, v6: bool) -> Option<IpAddr> {
        let Some(pools) = &self.clients else { return Some(captured) };
        let pool = pools[usize::from(v6)].as_ref()?;
        let met = self.met.len() as u64;
        Some(
            *self.met.entry((captured, v6)).or_insert_with(|| pool.address(met % pool.addresses())),
        )
    }

    /// Client and server pools for IPv4 and IPv6, without empty ones, with their indices.
    fn pools(
        &self,
        conversations: &[Conversation],
        hosts: Option<&ScriptHosts>,
        mistakes: &mut ErrorCollector<'_>,
    ) -> Option<(Vec<Pool>, [[usize; 2]; 2])> {
        let (mut pools, mut places) = (Vec::new(), [[0; 2]; 2]);
        let sides = [
            ("clients", (|one| one.client_end.0) as fn(&Conversation) -> IpAddr),
            ("servers", |one| one.server_end.0),
        ];
        for (side, (name, of)) in sides.into_iter().enumerate() {
            for v6 in [false, true] {
                let mut all: Vec<IpAddr> =
                    conversations.iter().map(of).filter(|a| a.is_ipv6() == v6).collect();
                all.sort_unstable();
                all.dedup();
                if all.is_empty() {
                    continue;
                }
                places[side][usize::from(v6)] = pools.len();
                let hosts = hosts.filter(|_| side == 0);
                let pool = Pool {
                    name: if v6 { format!("{name} of IPv6") } else { name.to_owned() },
                    ranges: hosts.map_or_else(|| ranges(&all), |hosts| vec![hosts.range]),
                    ports: PORTS,
                    order: Order::Sequential,
                    hosts: hosts.map(|hosts| hosts.group),
                    shared: false,
                };
                pools.push(pool);
            }
        }
        if let Some(error) = pools.iter().find_map(|pool| Tuples::new(pool, 0).err()) {
            mistakes.report(&self.place, &error);
            return None;
        }
        Some((pools, places))
    }
}

/// Runs of consecutive addresses in a sorted list.
fn ranges(addresses: &[IpAddr]) -> Vec<AddrRange> {
    let number = |address: &IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    addresses
        .chunk_by(|a, b| number(b) - number(a) == 1)
        .filter_map(|run| AddrRange::new(*run.first()?, *run.last()?))
        .collect()
}

/// Assigns a kind to each conversation: the transport protocol and port of its server.
fn kinds(
    conversations: &mut [Conversation],
    pools: [[usize; 2]; 2],
    tunables: &Tunables,
    report: &mut ConversationsReport,
) -> Vec<Template> {
    let key = |one: &Conversation| {
        let port = Some(one.server_end.1);
        (one.client.transport, one.server_end.0.is_ipv6(), port)
    };
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    conversations.iter().for_each(|one| *counts.entry(key(one)).or_default() += 1);
    let mut by_count: Vec<_> =
        counts.iter().map(|(key, n)| (std::cmp::Reverse(*n), *key)).collect();
    by_count.sort_unstable();
    let counted_kinds: Vec<_> = by_count.into_iter().take(KINDS).map(|(_, key)| key).collect();
    let both_families =
        counted_kinds.iter().any(|key| key.1) && counted_kinds.iter().any(|key| !key.1);
    let mut numbers: HashMap<_, usize> = HashMap::new();
    let mut templates: Vec<Template> = Vec::new();
    for one in conversations {
        let mut key = key(one);
        if !counted_kinds.contains(&key) {
            key.2 = None;
        }
        one.template = *numbers.entry(key).or_insert_with(|| {
            let (transport, v6, port) = key;
            let mut kind = format!(
                "{} {}",
                transport_name(transport),
                port.map_or("other ports".into(), |port| port.to_string())
            );
            if both_families {
                kind += if v6 { " IPv6" } else { " IPv4" };
            }
            let of = pools.map(|side| side[usize::from(v6)]);
            templates.push(placeholder(
                &kind,
                transport,
                of,
                port.unwrap_or(one.server_end.1),
                tunables,
            ));
            report.kinds.push(KindReport { name: kind, ..KindReport::default() });
            templates.len() - 1
        });
        let kind = &mut report.kinds[one.template];
        kind.conversations += 1;
        kind.octets_to_server += sent_octets(&one.client);
        kind.octets_to_client += sent_octets(&one.server);
    }
    templates
}

/// A template for a kind. It has no arrivals, so its programs are empty.
fn placeholder(
    kind: &str,
    transport: Transport,
    [clients, servers]: [usize; 2],
    port: u16,
    tunables: &Tunables,
) -> Template {
    let program = |role| Program {
        name: kind.to_owned(),
        role,
        transport,
        instructions: match transport {
            Transport::Tcp => vec![Instruction::WaitPeerClose],
            Transport::Udp => {
                vec![Instruction::RecvPackets { packets: 1, take: None, within: None }]
            }
        },
        messages: BTreeMap::default(),
    };
    Template {
        name: kind.to_owned(),
        pair: 0,
        clients,
        servers,
        port,
        client: program(Role::Client),
        server: program(Role::Server),
        tls: None,
        proxy: None,
        http: None,
        http3: None,
        client_tunables: tunables.clone(),
        server_tunables: tunables.clone(),
        ends: squall_flows::Ends::Both,
        arrival: Arrival::None,
        limit: None,
        start: Nanos::ZERO,
        duration: None,
        waits: false,
        shape: None,
        gone: false,
        joined: false,
    }
}

/// Number of octets that a program made from a capture sends.
fn sent_octets(program: &Program) -> u64 {
    let part = |part: &Part| match part {
        Part::Octets(octets) => octets.len() as u64,
        Part::Repeat { len, .. } => u64::from(*len),
        // Programs made from captures have no marks.
        Part::Mark(_) => 0,
    };
    let of = |instruction: &Instruction| match instruction {
        Instruction::Send(MessageRef::Given(message))
        | Instruction::SendPacket(MessageRef::Given(message)) => {
            message.parts.iter().map(part).sum()
        }
        _ => 0,
    };
    program.instructions.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_of_two_scripts_with_the_same_ends_are_found() {
        let script = |ports: &[u16]| {
            let conversation = |port: &u16| Conversation {
                begin: Nanos::ZERO,
                template: 0,
                client: Program::client("c").send("x").build().unwrap(),
                server: Program::server("s").recv(1).build().unwrap(),
                client_end: ("10.0.0.1".parse().unwrap(), *port),
                server_end: ("10.0.0.2".parse().unwrap(), 80),
                party: None,
            };
            Script { conversations: ports.iter().map(conversation).collect(), ..Script::default() }
        };
        assert_eq!(same_ends(&script(&[1, 2]), &script(&[3])), None);
        let both = same_ends(&script(&[1, 2]), &script(&[3, 2]));
        assert_eq!(both.as_deref(), Some("TCP 10.0.0.1:2 > 10.0.0.2:80"));
    }
}
