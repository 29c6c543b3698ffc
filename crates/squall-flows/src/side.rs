//! Sides: the clients, servers or both of one port. Input: frames and the time. Output: frames.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::{Range, RangeInclusive},
    sync::Arc,
    time::Instant,
};

use squall_apps::{
    Apps, Call, Listener, MigrateTo, Peers, Program, ProgramError, ProgramId, State, Transport,
    quic_worker,
};
use squall_bpf::owner;
use squall_host::{Answer, HostTable};
use squall_tcp::{
    ClassId, ConnectError, FlowHint, FlowId, FlowInfo, FlowKind, Output, Settings, Socket, Stack,
    Tunables, Tuple,
};
use squall_units::{Cut, Division, Nanos, be16};
use squall_wire::{
    Ipv6Octets,
    checksum::{fold, sum},
};

use crate::{
    Arrival, Exhausted, Failure, FlowStatistics, HostedFlow, Interface, LinkStatistics, Load,
    LoadError, Network, NotBegun, Script, Statistics, Template, TemplateStatistics, Tuples,
    app_recorder::{AppRecorder, Begun, Recorder},
    arrivals::{Arrivals, Due, IsOwn},
    joined,
    link::{ETHERNET, FrameOwner, HostEnd, Ignored, Link},
    pool::{Pool as PoolOf, Rounds, divided},
    script::ends_at_client,
    sharing::{Share, Sharing},
    steady::{Steady, Tallies, Tally},
};

/// Room for frames.
pub trait FrameOutput {
    /// As [`squall_tcp::Output::due`].
    #[inline]
    fn due(&mut self, _tick: u32) {}

    /// Room for one frame of `len` octets (without FCS), all of which the caller writes; `cut`
    /// describes how to segment a GSO frame. `None`: no room, retry later.
    fn frame(&mut self, len: usize, cut: Cut) -> Option<&mut [u8]>;

    /// The longest frame that fits.
    fn longest(&self) -> usize;
}

/// Receive offloads of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveOffloads {
    /// How the frame was joined from segments (GRO).
    pub cut: Cut,
    /// Whether its TCP or UDP checksum may cover only the pseudo-header.
    pub partial: bool,
}

/// The roles of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Clients,
    Servers,
    Both,
}

impl Role {
    /// The parts of the load by role; [`Part::NOTHING`] for a role that the side lacks.
    pub fn parts(self, clients: Part, servers: Part) -> (Part, Part) {
        match self {
            Self::Clients => (clients, Part::NOTHING),
            Self::Servers => (Part::NOTHING, servers),
            Self::Both => (clients, servers),
        }
    }
}

/// Settings of a side in addition to its load and network.
#[derive(Clone, Copy, Debug)]
pub struct SideSettings {
    pub role: Role,
    /// This worker's number, and the number of workers. Frames must reach their [`Side::owner`].
    pub worker: (u32, u32),
    /// The part of the run whose flows begin here, determined by the client's address. Servers
    /// accept any client.
    pub part: Division,
    /// Start of the load.
    pub start: Nanos,
    /// The clock's time at 0 of the run's time, which QUIC needs; `None`: no flows are over HTTP/3.
    pub origin: Option<Instant>,
    /// Maximum number of flows, including those in TIME-WAIT; at most 2^30.
    pub flows: u32,
    /// The longest packet that may leave unsegmented (GSO); 0: no GSO.
    pub gso_max_size: u16,
    /// Verify received checksums.
    pub verify: bool,
    /// The parts of the load that the side plays as clients and as servers.
    pub clients: Part,
    pub servers: Part,
}

/// The part of a load that a side plays in one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The pairs of ports whose templates it includes, one bit each.
    pub pairs: u64,
    /// The scripts whose conversations it includes, one bit each.
    pub scripts: u8,
}

impl Part {
    pub const ALL: Self = Self { pairs: !0, scripts: !0 };
    pub const NOTHING: Self = Self { pairs: 0, scripts: 0 };

    /// The templates of one pair of ports, and no conversations of scripts.
    pub fn of_pair(pair: u8) -> Self {
        Self { pairs: 1 << pair, scripts: 0 }
    }

    /// The union of the two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { pairs: self.pairs | other.pairs, scripts: self.scripts | other.scripts }
    }

    /// Whether it includes template `number` of `load`.
    pub fn has(self, load: &Load, number: usize) -> bool {
        match load.script_of(number) {
            Some(script) => self.has_script(script),
            None => self.pairs >> load.templates[number].pair & 1 == 1,
        }
    }

    /// Whether it includes the conversations of a script.
    pub(crate) fn has_script(self, script: usize) -> bool {
        self.scripts >> script & 1 == 1
    }
}

/// Memory of an open flow at one end in octets, if nothing is lost: a record of 100 or, while it
/// waits with nothing to send, 52; 6 for its number, 4 to 16 for its timers, 16 while it has data
/// to send, 8 to 24 in the table (most while it grows), 8 for a client's times. A flow in TIME-WAIT
/// takes 40 to 56, and 36 more for IPv6.
pub const FLOW_OCTETS: u64 = 170;

/// The default of [`SideSettings::flows`] on a machine with `memory` octets: as many as fit half of
/// it, but at least 2^21 and at most 2^28. Records and tables grow with the load, so unused room
/// costs nothing.
pub fn default_flows(memory: u64) -> u32 {
    let fits = memory / 2 / FLOW_OCTETS;
    u32::try_from(fits).unwrap_or(u32::MAX).clamp(1 << 21, 1 << 28)
}

impl SideSettings {
    fn seat(self) -> WorkerIndex {
        WorkerIndex { part: self.part, worker: self.worker }
    }
}

impl Default for SideSettings {
    fn default() -> Self {
        Self {
            role: Role::Both,
            worker: (0, 1),
            part: Division::WHOLE,
            start: Nanos::ZERO,
            origin: None,
            flows: default_flows(0),
            gso_max_size: 0,
            verify: true,
            clients: Part::ALL,
            servers: Part::ALL,
        }
    }
}

/// A flow over QUIC ends by itself this much later than its connection would, at most after the
/// longest time that [`Tunables::check`] allows.
const AFTER_QUIC: Nanos = Nanos(1_000_000_000);
const MAX_IDLE: Nanos = Nanos(3_600_000_000_000);

/// The flows of one side on one worker.
pub struct Side {
    stack: Stack<AppRecorder>,
    link: Link,
    clients: Option<Clients>,
    /// Clients that must not begin flows.
    disabled: Option<Arc<Ignored>>,
    /// Addresses and ports of servers of HTTP/3.
    quic: Vec<(RangeInclusive<IpAddr>, u16)>,
    /// Per template: its clients and servers.
    classes: Vec<[Option<(ClassId, ProgramId)>; 2]>,
    settings: SideSettings,
    drain: Nanos,
    /// Templates that were removed, and those among them with flows left to abort.
    gone: BTreeSet<usize>,
    leaving: Leaving,
    unbound: Unbound,
    host_use: HostUse,
    /// Whether [`Side::stop`] was called.
    stopped: bool,
    /// The configured end of the run, if known.
    end: Option<Nanos>,
    stopping: Stopping,
    steady: Steady,
    /// The end of the arrivals: one gap after the last flow was due, so that n flows at n flows/s
    /// take one second.
    arrivals_until: Option<Nanos>,
    /// The latest `now`, and its lag against real time.
    now: Nanos,
    lag: Nanos,
    /// A datagram of several that were joined.
    joined: Vec<u8>,
}

/// An open flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlow {
    pub tcp: FlowInfo,
    /// Its age; `None` for servers: storing their start times would cost 8 octets per flow.
    pub lasted: Option<Nanos>,
}

/// Programs of removed templates, and the lowest flow number that may use one of them.
#[derive(Default)]
struct Leaving {
    programs: Vec<ProgramId>,
    from: u32,
}

/// Addresses that hosts have lost, and the lowest flow number that may use one of them.
#[derive(Default)]
struct Unbound {
    addresses: HashSet<IpAddr>,
    from: u32,
}

/// The tables of hosts from which or to which the side has flows.
#[derive(Default)]
struct HostUse {
    tables: Vec<Arc<HostTable>>,
    /// No flow follows, so hosts may give their addresses back.
    ended: bool,
    /// For a side of servers: whether others have used the hosts, and since when its open flows are
    /// the last use.
    had_others: bool,
    last_since: Option<Nanos>,
}

/// Phases of the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    /// All flows have begun. The run may continue until this time, and then while segments are
    /// exchanged; the number is [`Side::activity`] at the last check.
    Ending(Nanos, u64),
    /// No flow begins any more; open flows may end until this time.
    Draining(Nanos),
    /// Flows from this number on must still be aborted.
    Aborting(u32),
    Done,
}

/// Why no conversation of a party begins any more: an index in [`NotBegun::NAMES`], and the reason
/// for its conversations.
type Refusal = (usize, &'static str);

/// The client role: begins flows.
struct Clients {
    arrivals: Arrivals,
    templates: Vec<ClientTemplate>,
    /// By template.
    rounds: Vec<Rounds>,
    pools: Vec<Pool>,
    servers: Vec<Tuples>,
    /// By pool: its servers that are hosts.
    server_hosts: Vec<Option<HostServers>>,
    seat: WorkerIndex,
    /// Flows whose next hop is being resolved.
    parked: VecDeque<(Due, Place)>,
    /// The clients of each script, by conversation.
    scripts: Vec<Vec<Client>>,
    /// The first template of a script.
    first_scripted: usize,
    /// Conversations of scripts whose clients are hosts, by number, and the hosts of their parties.
    hosted: BTreeMap<u32, HostedFlow>,
    parties: HashMap<u32, Result<HostEnd, Refusal>>,
    busy: PendingTuples,
    /// Number of resolved and failed next hops when the parked flows were last retried.
    retried_at: u64,
    limit: u64,
    /// Flows of templates that belong to no script.
    begun: u64,
}

/// The ends of a flow and its position in the template's order.
#[derive(Clone, Copy)]
struct Place {
    tuple: Tuple,
    position: u64,
    /// The client, if it is a host.
    host: Option<HostEnd>,
}

/// Conversations whose addresses and ports are still in use. Only the first of each queue is
/// retried, periodically, so that conversations with the same tuple keep their order.
#[derive(Default)]
struct PendingTuples {
    waiting: HashMap<Tuple, VecDeque<Due>>,
    again: VecDeque<(Nanos, Tuple)>,
}

/// The client side of a conversation.
#[derive(Clone, Copy)]
struct Client {
    tuple: Tuple,
    program: ProgramId,
    /// Its number over all scripts, and its party.
    number: u32,
    party: Option<u32>,
}

struct ClientTemplate {
    pool: usize,
    /// This template's share of the pool.
    tuples: Tuples,
    servers: usize,
    name: String,
    port: u16,
    /// The script that it belongs to, if any.
    script: Option<usize>,
    /// Whether this side plays its clients.
    begins: bool,
    /// Whether the clients and the servers are hosts, and whether either are.
    hosts: [bool; 2],
    of_hosts: bool,
    kind: FlowKind,
    class: ClassId,
    program: ProgramId,
    /// The first unused position in the order. A flow that found its tuple in use took a later
    /// position, and the next flows continue after that.
    next: u64,
    /// The table slots of positions before this one have been prefetched.
    approached: u64,
    /// Whether only other flows begin its flows.
    only_called: bool,
    /// Number of flows begun by other flows, and number of ports tried for them.
    called: u64,
    ports_tried: u64,
    /// Number of ends that were tried for flows that move.
    ends_moved: u64,
    not_begun: NotBegun,
}

struct Pool {
    tuples: Tuples,
    /// If all templates share one order: the first unused position.
    next: Option<u64>,
    /// One bit per address: whether a flow found no free port at it.
    busy: Vec<u64>,
    exhausted: Exhausted,
    hosts: Option<HostClients>,
}

/// The clients of a pool that are hosts of a group.
struct HostClients {
    table: Arc<HostTable>,
    /// The number of the group on the link, and the position in the table's order.
    on_link: usize,
    at: u32,
    /// Number of ports that each host has used: as on any host, its ports follow each other.
    ports: Vec<u32>,
}

/// The servers of a pool that are hosts of a group.
struct HostServers {
    table: Arc<HostTable>,
    /// The position in the table's order.
    at: u32,
    /// Addresses to which flows have begun, with the numbers of their hosts.
    known: HashMap<IpAddr, u32>,
}

/// Maximum number of flows waiting for their next hop (ADR 0025): with a router that does not
/// reply, arrivals would otherwise accumulate without limit.
const MAX_PARKED: usize = 1 << 16;
/// Number of flows whose slots in the stack's table are prefetched together: about as many cache
/// misses as a core has in flight, because further ones would wait for these.
const PREFETCHED: u64 = 8;
/// Maximum number of tuples tried for one flow: otherwise an arrival would take longer, the more of
/// a pool is in use.
const MAX_TRIES: u64 = 64;
/// The time until a conversation whose tuple is in use is retried: short compared with TIME-WAIT (1
/// s by default), because that usually holds the tuple.
const BUSY_RETRY: Nanos = Nanos(10_000_000);
/// Maximum number of positions searched, per worker, for one that is this worker's. With n workers
/// each position misses with probability 1 - 1/n, so 64 n misses in a row have a probability below
/// e^-64.
const MAX_SEARCH: u64 = 64;
/// Pause of a user whose flow could not begin: otherwise an exhausted pool would be retried in a
/// busy loop.
const BACK_OFF: Nanos = Nanos(1_000_000);
/// Maximum number of flows aborted at once. The next flows wait until the output is empty, because
/// each sends a reset, and there is no room for millions.
const ABORTED_AT_ONCE: u32 = 1024;
/// Maximum number of flow records searched at once for those of a template, because the port is not
/// served meanwhile.
const SEARCHED_AT_ONCE: u32 = 1 << 14;
/// Shortest interval between checks whether the last flows are still active: a drain time of 0
/// would otherwise cause a check at each turn.
const ACTIVITY_INTERVAL: Nanos = Nanos(1_000_000);
/// Number of a template's servers whose next hops are requested at the start: not all, because a
/// request for each of a large pool would flood the network.
const RESOLVED_AHEAD: u64 = 256;

impl Side {
    /// # Errors
    /// [`LoadError`]: an invalid load, network, program or tunable.
    pub fn new(load: &Load, network: &Network, settings: SideSettings) -> Result<Self, LoadError> {
        let (clients, servers) = load.check(network)?;
        let sharing = Sharing::of(load, &clients);
        if let Some(error) = sharing.error.as_ref().filter(|_| settings.role != Role::Clients) {
            return Err(error.clone());
        }
        let (of_clients, _) = settings.role.parts(settings.clients, settings.servers);
        let mut link = Link::new(network, settings.part);
        own_pools(load, settings, 0, [&clients, &servers])
            .for_each(|(pool, divided)| link.add_pool(pool, divided));

        let app = AppRecorder::new(Apps::new(load.seed, Recorder::default()));
        // Room for at least one flow. The key depends on the load's seed, so that runs are
        // repeatable.
        let stack_settings = Settings {
            flows: settings.flows.clamp(1, 1 << 30),
            key: [load.seed ^ 0x5371_7561_6c6c, u64::from(settings.worker.0)],
            verify: settings.verify,
            // GSO is off with tags or tunnels, because ports can segment only plain Ethernet
            // frames.
            gso_max_size: if link.is_plain() { settings.gso_max_size } else { 0 },
            ..Settings::default()
        };
        let stack = Stack::new(stack_settings, app);
        let mut side = Self {
            stack,
            link,
            clients: None,
            disabled: None,
            quic: Vec::new(),
            classes: Vec::new(),
            settings,
            drain: load.drain,
            gone: BTreeSet::new(),
            leaving: Leaving::default(),
            unbound: Unbound::default(),
            host_use: HostUse::default(),
            stopped: false,
            end: end_of(load, settings.start),
            stopping: Stopping::No,
            steady: Steady::new(load, settings.start),
            arrivals_until: None,
            now: Nanos::ZERO,
            lag: Nanos::ZERO,
            joined: Vec::new(),
        };
        if settings.role != Role::Servers {
            let seat = settings.seat();
            side.clients = Some(Clients {
                arrivals: Arrivals::new(load, of_clients, seat, settings.start),
                templates: Vec::new(),
                rounds: Vec::new(),
                pools: Vec::new(),
                servers: Vec::new(),
                server_hosts: Vec::new(),
                seat,
                parked: VecDeque::new(),
                scripts: Vec::new(),
                first_scripted: load.own_templates(),
                hosted: BTreeMap::new(),
                parties: HashMap::new(),
                busy: PendingTuples::default(),
                retried_at: 0,
                limit: most_active(load, seat),
                begun: 0,
            });
        }
        side.take_templates(load, &sharing, &clients, &servers)?;
        let mut before = 0;
        for (number, script) in load.scripts.iter().enumerate() {
            side.take_script(number, script, before)?;
            before += script.conversations.len();
        }
        side.ask_ahead(0);
        Ok(side)
    }

    /// Gives pools that are hosts the tables of their groups, by the groups' numbers. Pools without
    /// a table have no hosts. Call it before the first flow, and after [`Side::change`].
    pub fn use_hosts(&mut self, load: &Load, tables: &[Option<Arc<HostTable>>]) {
        let table = |pool: &PoolOf| tables.get(pool.hosts?)?.as_ref();
        let known = load.templates.iter().enumerate().take(self.classes.len());
        for (number, template) in known {
            let pool = &load.clients[template.clients];
            let servers = &load.servers[template.servers];
            let clients = self.clients.as_mut();
            if let Some(clients) = clients.filter(|clients| clients.templates[number].begins) {
                let hosts = &mut clients.pools[template.clients].hosts;
                if let Some(table) = table(pool).filter(|_| hosts.is_none()) {
                    let on_link = self.link.add_hosts(table, None);
                    let ports = vec![0; table.hosts()];
                    *hosts = Some(HostClients { table: table.clone(), on_link, at: 0, ports });
                    self.host_use.add(table);
                }
                let hosts = &mut clients.server_hosts[template.servers];
                if let Some(table) = table(servers).filter(|_| hosts.is_none()) {
                    *hosts = Some(HostServers::new(table));
                    self.host_use.add(table);
                }
            }
            if let Some(table) = table(servers).filter(|_| self.serves(load, number)) {
                let stand_ins = Tuples::new(servers, load.seed);
                let stand_ins = stand_ins.expect("the load was checked before");
                self.link.add_hosts(table, Some(&stand_ins));
                self.host_use.add(table);
            }
            let scripted = number >= load.own_templates();
            if let Some(table) = table(pool).filter(|_| scripted)
                && self.settings.servers.has(load, number)
                && let Some(serving) = &mut self.stack.app_mut().serving
            {
                serving.clients = Some(table.clone());
            }
        }
    }

    /// Adds the new templates of `load` with their programs and listeners; `clients` and `servers`
    /// are the load's pools.
    fn take_templates(
        &mut self,
        load: &Load,
        sharing: &Sharing,
        clients: &[Tuples],
        servers: &[Tuples],
    ) -> Result<(), LoadError> {
        if let Some(known) = &mut self.clients {
            let pools = load.clients.iter().zip(clients);
            known.pools.extend(pools.skip(known.pools.len()).map(Pool::new));
            known.servers.extend(servers.iter().skip(known.servers.len()).cloned());
            known.server_hosts.resize_with(known.servers.len(), || None);
            known.first_scripted = load.own_templates();
        }
        for number in self.classes.len()..load.templates.len() {
            let template = &load.templates[number];
            let client = match self.settings.role {
                Role::Servers => None,
                _ => Some(self.class(number, template, &template.client, true)?),
            };
            let server = match self.settings.role {
                Role::Clients => None,
                _ => Some(self.class(number, template, &template.server, false)?),
            };
            self.classes.push([client, server]);
            if let Some((class, program)) = server {
                self.listen(load, number, sharing, (class, program));
            }
            let Some(((class, program), known)) = client.zip(self.clients.as_mut()) else {
                continue;
            };
            let (pool, Share { rank, of }) = (&clients[template.clients], sharing.shares[number]);
            let hosts = [&load.clients[template.clients], &load.servers[template.servers]]
                .map(|pool| pool.hosts.is_some());
            let tuples = pool.share(rank, of).unwrap_or_else(|| pool.clone());
            known.rounds.push(tuples.rounds(&known.servers[template.servers]));
            known.templates.push(ClientTemplate {
                pool: template.clients,
                tuples,
                servers: template.servers,
                name: template.name.clone(),
                port: template.port,
                script: load.script_of(number),
                begins: template.ends.has_clients() && self.settings.clients.has(load, number),
                hosts,
                of_hosts: hosts.contains(&true),
                kind: template.kind(),
                class,
                program,
                next: 0,
                approached: 0,
                only_called: template.arrival == Arrival::Called,
                called: 0,
                ports_tried: 0,
                ends_moved: 0,
                not_begun: NotBegun::default(),
            });
            // Stored for UDP only, where a server may send after its client has ended
            // (`AppRecorder::ended`).
            let begins = known.templates[number].begins;
            if begins && template.kind() == FlowKind::Udp {
                let [client_hosts, server_hosts] = hosts;
                let servers = &servers[template.servers];
                let clients = (!client_hosts).then(|| pool.clone());
                let servers = (!server_hosts).then(|| servers.clone());
                self.stack.app_mut().clients.push((clients, servers));
            }
        }
        Ok(())
    }

    /// Adds the tunables and the program of one side of a template.
    fn class(
        &mut self,
        number: usize,
        template: &Template,
        program: &Program,
        client: bool,
    ) -> Result<(ClassId, ProgramId), LoadError> {
        let wrong = |text: String| LoadError::Template { template: template.name.clone(), text };
        let tunables = if client { &template.client_tunables } else { &template.server_tunables };
        // RFC 6691: an MSS excludes the fixed headers of IPv4 and TCP (40 octets), but not options.
        // The stack subtracts the longer header of IPv6.
        let most = self.link.mtu().saturating_sub(40);
        let mut tunables = Tunables { mss: tunables.mss.min(most), ..tunables.clone() };
        // IPv6 takes 20 octets of the MSS, and first packets have 1,200 (RFC 9000 section 14).
        if template.http3.is_some() && tunables.mss < 1_208 {
            let text = "HTTP/3 has packets of 1,200 octets: expected an MTU of at least 1,248, and \
                        an mss of at least 1,208\n  try leaving out tcp.mss";
            return Err(wrong(text.into()));
        }
        if template.http3.is_some() && tunables.udp_idle > Nanos::ZERO {
            // QUIC ends its connections by itself; this is for flows without one.
            tunables.udp_idle = (tunables.udp_idle + AFTER_QUIC).min(MAX_IDLE);
        }
        let class = self.stack.add_class(tunables).map_err(|error| wrong(error.to_string()))?;
        let app = self.stack.app_mut();
        let program = app.add(number, client, program).map_err(|error| wrong(error.to_string()))?;
        let tls = template.tls.as_ref();
        if let Some(tls) = tls.filter(|_| template.http3.is_none()) {
            app.secure(program, tls);
        }
        if let Some(proxy) = &template.proxy {
            app.apps.proxy(program, proxy);
        }
        if let Some(http) = &template.http {
            app.over_http2(program, http);
        }
        if let Some((http, tls)) = template.http3.zip(tls) {
            let origin = self.settings.origin.ok_or_else(|| {
                wrong("HTTP/3 needs a time of the clock (SideSettings::origin)".into())
            })?;
            app.over_http3(program, &http, tls, origin);
            let worker = u8::try_from(self.settings.worker.0);
            let worker = worker.map_err(|_| wrong("HTTP/3 has at most 256 workers".into()))?;
            app.apps.set_worker(worker);
        }
        Ok((class, program))
    }

    /// Listens for a template's clients, if this side has its servers.
    fn listen(
        &mut self,
        load: &Load,
        number: usize,
        sharing: &Sharing,
        (class, program): (ClassId, ProgramId),
    ) {
        let template = &load.templates[number];
        if !self.serves(load, number) || template.gone {
            return;
        }
        let addresses = |pool: &PoolOf| -> Vec<_> {
            pool.ranges.iter().map(|range| range.first()..=range.last()).collect()
        };
        let Share { rank, of } = sharing.shares[number];
        let clients = &load.clients[template.clients];
        // The addresses of hosts are not known before.
        let clients = match clients.hosts {
            Some(_) => vec![any_address(clients)],
            None => addresses(clients),
        };
        let peers = Peers { addresses: clients, rank, of };
        let peers = sharing.shared[number].then_some(peers);
        if template.http3.is_some() {
            let all = addresses(&load.servers[template.servers]).into_iter();
            self.quic.extend(all.map(|range| (range, template.port)));
        }
        for addresses in addresses(&load.servers[template.servers]) {
            self.stack.app_mut().apps.listen(Listener {
                program,
                class,
                addresses,
                ports: template.port..=template.port,
                peers: peers.clone(),
            });
        }
    }

    /// Whether this side has the servers of a template. The conversations of a script have
    /// listeners of their own.
    fn serves(&self, load: &Load, number: usize) -> bool {
        self.settings.role != Role::Clients
            && number < load.own_templates()
            && self.settings.servers.has(load, number)
            && load.templates[number].ends.has_servers()
    }

    /// Adds the programs of this worker's conversations in script `which`; `before`: the number of
    /// conversations in earlier scripts.
    fn take_script(
        &mut self,
        which: usize,
        script: &Script,
        before: usize,
    ) -> Result<(), LoadError> {
        let seat = self.settings.seat();
        let serves_it = self.settings.servers.has_script(which);
        let app = self.stack.app_mut();
        let mut all = Vec::new();
        let mut serving = app.serving.take().unwrap_or_default();
        for (number, conversation) in script.conversations.iter().enumerate() {
            let wrong = |error: ProgramError| LoadError::Conversation {
                number: number + 1,
                text: error.to_string(),
            };
            let [client, server] = &self.classes[conversation.template];
            let tuple = conversation.of_client();
            if let Some((_, kind)) = client {
                // Conversations of other workers need an entry too, because the index is the
                // conversation's number.
                let program = match seat.has(&tuple) {
                    true => app
                        .add_conversation(*kind, before + number, &conversation.client)
                        .map_err(wrong)?,
                    false => *kind,
                };
                let number = (before + number) as u32;
                all.push(Client { tuple, program, number, party: conversation.party });
            }
            let serves = seat.owns(&tuple) && serves_it;
            if let Some((class, kind)) = server.as_ref().filter(|_| serves) {
                let program = app
                    .add_conversation(*kind, before + number, &conversation.server)
                    .map_err(wrong)?;
                serving.add(((before + number) as u32, conversation), *class, program);
            }
        }
        app.serving = Some(serving);
        if let Some(clients) = &mut self.clients {
            clients.scripts.push(all);
        }
        Ok(())
    }

    /// Requests the gateways, and the next hops of templates from number `first` on, because the
    /// first flows would otherwise wait for ARP, and their `corrected` durations would include it.
    fn ask_ahead(&mut self, first: usize) {
        self.link.ask_gateways(self.now);
        let Some(clients) = &self.clients else { return };
        let asks = |template: &&ClientTemplate| template.begins && !template.of_hosts;
        for template in clients.templates.iter().skip(first).filter(asks) {
            let servers = &clients.servers[template.servers];
            // The first client represents all: the interface of another may have a next hop.
            let first = template.tuples.address(0);
            for i in 0..servers.addresses().min(RESOLVED_AHEAD) {
                self.link.resolve_from(self.now, first, servers.address(i));
            }
        }
    }

    /// Prefetches the flow records of frames that are about to be received, all at once, so that
    /// their cache misses overlap. Fills `near` in the order of the frames, as far as it has room.
    #[inline]
    pub fn prefetch<'f>(&self, frames: impl Iterator<Item = &'f [u8]>, near: &mut [FlowHint]) {
        match self.link.is_plain() && !self.stack.fits_cache() {
            true => self
                .stack
                .prefetch(frames.map(|frame| frame.get(ETHERNET..).unwrap_or_default()), near),
            false => near.fill(FlowHint::default()),
        }
    }

    /// Sets the lag of the side's clock (`now` in all calls) against real time. Call it once before
    /// received frames are processed.
    pub fn set_lag(&mut self, lag: Nanos) {
        self.lag = lag;
        self.stack.set_lag(lag);
        if let Some(clients) = &mut self.clients {
            clients.arrivals.set_lag(lag);
        }
    }

    /// Sets the arrival time of the next frame, in real time: the time at which its effects are
    /// due.
    #[inline]
    pub fn arrived(&mut self, at: Nanos) {
        self.stack.arrived(at);
    }

    /// Real time.
    fn real(&self) -> Nanos {
        self.now + self.lag
    }

    /// Receives a frame; `near`: from [`Side::prefetch`], or the default. Returns whether the frame
    /// was addressed to the side.
    #[inline]
    pub fn receive(
        &mut self,
        now: Nanos,
        frame: &[u8],
        came: ReceiveOffloads,
        near: FlowHint,
    ) -> bool {
        let refused = self.link.refused();
        let Some(packet) = self.link.receive(frame, &mut self.stack.app_mut().served) else {
            return self.link.refused() == refused;
        };
        // A joined frame was verified by the code that joined it (GRO). A partial checksum means
        // that the sending host left it to its NIC; it is accepted only if the port reports that
        // and the sum of the pseudo-header is correct, because a damaged frame may look the same.
        if !came.cut.is_whole() || came.partial && has_partial_checksum(packet) {
            self.link.statistics.checksum_unverified += u64::from(came.partial);
            match came.cut.is_udp() {
                true => {
                    // All have arrived at once.
                    let at = self.stack.arrival();
                    joined::split(packet, came.cut.size, &mut self.joined, |packet| {
                        self.stack.arrived(at);
                        self.stack.receive_verified(now, packet);
                    });
                }
                false => self.stack.receive_verified(now, packet),
            }
        } else {
            self.stack.receive_prefetched(now, packet, near);
        }
        true
    }

    /// Whether [`Side::receive`] would accept the frame.
    pub fn claims(&self, frame: &[u8]) -> bool {
        self.link.claims(frame)
    }

    /// Replaces the ignored frames and the disabled clients; the next clients in their template's
    /// order replace them. TRex's clients can be disabled one by one in the same way.
    pub fn ignore(&mut self, ignored: &Arc<Ignored>) {
        self.link.ignore(ignored);
        self.disabled = (!ignored.clients.is_empty()).then(|| ignored.clone());
    }

    /// Replaces the interfaces of a side that has some.
    pub fn set_interfaces(&mut self, interfaces: &[Interface]) {
        self.link.set_interfaces(interfaces);
    }

    /// The worker that has the flow of a received frame.
    #[inline]
    pub fn owner(&self, frame: &[u8]) -> FrameOwner {
        let quic = self.settings.worker.1 > 1 && !self.quic.is_empty();
        let owner = if quic { self.quic_owner(frame) } else { None };
        owner.unwrap_or_else(|| self.link.owner(frame, self.settings.worker))
    }

    /// The worker of a datagram to a server of HTTP/3, by its connection ID, because its client may
    /// have moved to an address of another worker.
    fn quic_owner(&self, frame: &[u8]) -> Option<FrameOwner> {
        let (worker, workers) = self.settings.worker;
        let ((to, port), datagram) = self.link.datagram(frame)?;
        let serves = || self.quic.iter().any(|(all, at)| *at == port && all.contains(&to));
        let owner = quic_worker(datagram).filter(|_| serves())?;
        let owner = u32::from(owner);
        let owner_of = if owner == worker { FrameOwner::Here } else { FrameOwner::Other(owner) };
        (owner < workers).then_some(owner_of)
    }

    /// Learns from a neighbor's reply that another worker received, because each worker has its own
    /// neighbor table. Sends no reply.
    pub fn learn_neighbor(&mut self, frame: &[u8]) {
        self.link.learn_neighbor(frame);
    }

    /// Counts frames relayed to other workers, and those dropped because a queue was full.
    pub fn relayed(&mut self, handed: u64, dropped: u64) {
        self.link.statistics.relayed += handed;
        self.link.statistics.relay_dropped += dropped;
    }

    /// Does everything due by `now` except beginning flows: see [`Side::begin`].
    #[inline]
    pub fn advance(&mut self, now: Nanos) {
        self.now = now;
        if self.stack.next_due().is_some_and(|due| due <= now) {
            self.stack.advance(now);
        }
        if self.link.next_due().is_some_and(|due| due <= now) {
            self.link.advance(now);
        }
        if self.stopping != Stopping::No {
            self.go_on_stopping(now);
        }
        self.go_on_leaving(now);
        self.unbind(now);
        if self.settings.role == Role::Servers {
            self.keep_hosts(now);
        }
        if !self.stack.app().apps.calls().is_idle() {
            self.answer_calls(now);
        }
        if self.stack.app().apps.has_moves() {
            self.move_flows(now);
        }
        let real = now + self.lag;
        if self.steady.is_due(real) {
            let counted = self.tallies();
            self.steady.look(real, counted);
        }
        let Some(clients) = &mut self.clients else { return };
        let calls = self.stack.app().apps.calls().waiting().next().is_some();
        if calls || !clients.parked.is_empty() {
            self.unpark(now);
        }
        self.steer(now);
    }

    /// Begins at most `most` due flows. Returns the number of arrivals. The bound lets received
    /// frames come first: otherwise a backlog of arrivals would delay the open flows, and a
    /// generator beyond its limit would collapse (ADR 0025).
    #[inline]
    pub fn begin(&mut self, now: Nanos, most: usize) -> usize {
        let Some(clients) = &mut self.clients else { return 0 };
        self.stack.app_mut().each_ended(|template, due| clients.arrivals.ended(template, due));
        let mut begun = 0;
        while begun < most {
            let Some(clients) = &mut self.clients else { break };
            let retried = clients.busy.take(now);
            let Some(due) = retried.or_else(|| clients.take(now)) else { break };
            begun += 1;
            if retried.is_none() && clients.waits(now, due) {
                continue;
            }
            self.arrive(now, due);
        }
        if begun == 0
            && self.stopping == Stopping::No
            && !self.steady.is_final()
            && self.arrivals_over(now)
        {
            let at = self.clients.as_ref().and_then(|clients| {
                let (next, end) = (clients.arrivals.after_last()?, clients.arrivals.end());
                // The last gap of an open loop may extend beyond its end, because the rate applies
                // until then.
                Some(if now >= end { next.max(end) } else { next })
            });
            self.end_arrivals(at.unwrap_or(now));
            // A side with servers continues, because only the other side knows when its last flow
            // has begun.
            if self.settings.role == Role::Clients {
                self.stop_arrivals(now);
                // The last flows may use the rest of the configured time. Otherwise a limit of
                // flows would cut them off after the drain time, whatever the duration.
                let until = self.end.unwrap_or(now).max(now) + self.drain;
                self.stopping = Stopping::Ending(until, self.activity());
                self.go_on_stopping(now);
            }
        }
        begun
    }

    /// Records that no flow is due from `at` on. Only the first call has an effect.
    fn end_arrivals(&mut self, at: Nanos) {
        self.steady.end(at);
        if let Some(clients) = &self.clients {
            self.arrivals_until.get_or_insert(at.min(clients.arrivals.end()));
        }
    }

    fn arrivals_over(&self, now: Nanos) -> bool {
        self.clients.as_ref().is_some_and(|c| {
            c.arrivals.over(now) && c.parked.is_empty() && c.busy.waiting.is_empty()
        })
    }

    /// Changes the load to `load`, already checked by [`Load::can_become`]. New templates wait for
    /// [`Side::begin_template`], so that all sides have their servers before the first flow.
    ///
    /// # Panics
    ///
    /// If new templates are invalid ([`Side::new`]).
    pub fn change(&mut self, now: Nanos, load: &Load) {
        if self.stopped {
            return;
        }
        self.drain = load.drain;
        let joined = load.templates.len() > self.classes.len();
        if joined {
            self.join(load).expect("the load was checked before");
        }
        if let Some(clients) = &mut self.clients {
            clients.arrivals.join(load, self.settings.clients);
        }
        self.leave(now, load);
        if joined {
            // Undone, because a side that had already begun all its flows has more to begin.
            self.stopping = Stopping::No;
            self.host_use.set(true);
            self.stack.app_mut().stopping = false;
            self.steady.go_on(now, load, self.settings.start);
            self.arrivals_until = None;
        }
        if self.stopping != Stopping::No {
            return;
        }
        self.steady.change(load, self.settings.start);
        self.end = end_of(load, self.settings.start);
        if let Some(clients) = &mut self.clients {
            clients.limit = most_active(load, clients.seat);
            clients.arrivals.change(now, load);
        }
    }

    /// Adds new templates.
    fn join(&mut self, load: &Load) -> Result<(), LoadError> {
        let (clients, servers) = load.check(self.link.network())?;
        let sharing = Sharing::of(load, &clients);
        let known = self.classes.len();
        own_pools(load, self.settings, known, [&clients, &servers])
            .for_each(|(pool, divided)| self.link.add_pool(pool, divided));
        self.take_templates(load, &sharing, &clients, &servers)?;
        self.ask_ahead(known);
        Ok(())
    }

    /// Removes templates: their servers stop listening, and their open flows are aborted.
    fn leave(&mut self, now: Nanos, load: &Load) {
        for number in (0..load.templates.len()).filter(|number| load.templates[*number].gone) {
            if !self.gone.insert(number) {
                continue;
            }
            let sides = self.classes[number].into_iter().flatten().map(|(_, program)| program);
            self.leaving.programs.extend(sides);
            self.leaving.from = 0;
            let apps = &mut self.stack.app_mut().apps;
            self.classes[number][1].iter().for_each(|(_, program)| apps.stop_listening(*program));
            if let Some(clients) = &mut self.clients {
                clients.give_up(now, number);
            }
        }
        self.go_on_leaving(now);
    }

    /// Aborts some more flows of removed templates.
    fn go_on_leaving(&mut self, now: Nanos) {
        if self.leaving.programs.is_empty() || self.stack.has_output() {
            return;
        }
        let programs = std::mem::take(&mut self.leaving.programs);
        let leaves = |app: &AppRecorder, socket: &mut Socket<'_, State>| {
            programs.contains(&app.apps.program(socket.state()))
        };
        self.leaving.from = self.abort_some(now, self.leaving.from, Failure::Stopped, leaves);
        if self.leaving.from < self.stack.records() {
            self.leaving.programs = programs;
        }
    }

    /// Aborts some more flows of hosts that have lost their addresses.
    fn unbind(&mut self, now: Nanos) {
        let before = self.unbound.addresses.len();
        self.link.take_lost(&mut self.unbound.addresses);
        if self.unbound.addresses.len() > before {
            self.unbound.from = 0;
            // Packets to their next hosts add them again.
            let served = &mut self.stack.app_mut().served;
            for address in &self.unbound.addresses {
                served.remove(address);
            }
            if let Some(clients) = &mut self.clients {
                clients.lose_parties(&self.unbound.addresses);
            }
        }
        if self.stack.has_output() {
            return;
        }
        if self.unbound.addresses.is_empty() {
            // After the resets of their flows, which would leave with the MAC address of a pool if
            // the link did not know the addresses.
            self.link.forget_lost();
            return;
        }
        let addresses = std::mem::take(&mut self.unbound.addresses);
        let loses = |_: &AppRecorder, socket: &mut Socket<'_, State>| {
            addresses.contains(&socket.tuple().local)
        };
        self.unbound.from = self.abort_some(now, self.unbound.from, Failure::AddressLost, loses);
        if self.unbound.from < self.stack.records() {
            self.unbound.addresses = addresses;
        }
    }

    /// Keeps the addresses of hosts that are servers while they have open flows. If clients use the
    /// hosts no longer, or after the end of the run, open flows keep them for the drain time.
    fn keep_hosts(&mut self, now: Nanos) {
        if self.host_use.tables.is_empty() {
            return;
        }
        let open = self.stack.active() > self.stack.app().apps.lingering();
        let others = self.host_use.has_others();
        self.host_use.had_others |= others;
        // Without others, clients are external, and may begin flows until the end.
        let is_end = self.end.map_or(self.host_use.had_others, |end| self.real() >= end);
        let is_last = open && !others && (is_end || self.stopped);
        let since = is_last.then(|| self.host_use.last_since.unwrap_or(now));
        self.host_use.last_since = since;
        self.host_use.set(open && since.is_none_or(|since| now < since + self.drain));
    }

    /// Lets hosts give their addresses back, although flows of the side may be open.
    pub fn release_hosts(&mut self) {
        self.host_use.set(false);
    }

    /// Whether hosts keep their addresses for flows of the side.
    pub fn uses_hosts(&self) -> bool {
        !self.host_use.ended && !self.host_use.tables.is_empty()
    }

    /// Whether the end of the run waits for the last flows of hosts that are servers. Without
    /// clients of the run, others begin flows, and may do so without end: only the drain time after
    /// the end is theirs.
    pub fn awaits_last_flows(&self) -> bool {
        let is_bounded = self.host_use.had_others || self.host_use.last_since.is_some();
        self.uses_hosts() && is_bounded
    }

    /// Aborts flows from number `from` on for which `ends` is true, which are counted as failed for
    /// this reason. Returns the number to continue with.
    fn abort_some(
        &mut self,
        now: Nanos,
        mut from: u32,
        why: Failure,
        ends: impl Fn(&AppRecorder, &mut Socket<'_, State>) -> bool,
    ) -> u32 {
        let (mut searched, mut aborted) = (0, 0);
        while from < self.stack.records()
            && aborted < ABORTED_AT_ONCE
            && searched < SEARCHED_AT_ONCE
        {
            let end = |app: &mut AppRecorder, socket: &mut Socket<'_, State>| {
                let ends = ends(app, socket);
                if ends {
                    // Set, so that the flow does not count as aborted by its program.
                    app.aborting = Some(why);
                    socket.abort();
                }
                ends
            };
            aborted += u32::from(self.stack.with(now, FlowId(from), end) == Some(true));
            self.stack.app_mut().aborting = None;
            (from, searched) = (from + 1, searched + 1);
        }
        from
    }

    /// Suspends the arrivals of a template (`None`: all) until [`Side::resume`]; open flows
    /// continue.
    pub fn pause(&mut self, now: Nanos, template: Option<usize>) {
        if let Some(clients) = &mut self.clients {
            clients.arrivals.pause(now, template);
        }
    }

    /// Resumes the arrivals; the suspended ones are postponed.
    pub fn resume(&mut self, now: Nanos, template: Option<usize>) {
        if let Some(clients) = &mut self.clients {
            clients.arrivals.resume(now, template);
        }
    }

    /// Starts a template that waited; its `start` counts from `at`.
    pub fn begin_template(&mut self, at: Nanos, template: usize) {
        if let Some(clients) = &mut self.clients {
            clients.arrivals.begin(at, template);
        }
    }

    /// Whether all flows of a template have ended and none will begin; `None`: the side does not
    /// have its clients.
    pub fn has_ended(&self, now: Nanos, template: usize) -> Option<bool> {
        let clients = self.clients.as_ref()?;
        let (_, program) = self.classes.get(template)?[0].as_ref()?;
        let waits = clients.parked.iter().map(|(due, _)| due);
        let mut waits = waits.chain(clients.busy.waiting.values().flatten());
        let open = self.stack.app().apps.observer().of(*program).active;
        Some(
            self.is_over()
                || (clients.arrivals.over_of(now, template)
                    && open == 0
                    && waits.all(|due| due.template != template)),
        )
    }

    #[inline]
    fn arrive(&mut self, now: Nanos, due: Due) {
        let Some(clients) = &mut self.clients else { return };
        if self.stack.active() as u64 >= clients.limit {
            return clients.refuse_due(now, due, NotBegun::LIMIT);
        }
        let place = clients.place(due);
        let place = match &place {
            Ok(place) => place,
            Err(why) => return clients.refuse_due(now, due, *why),
        };
        if let Some(host) = place.host {
            self.link.add_host(host);
        }
        match self.link.resolve_for(now, &place.tuple) {
            Answer::Mac(_) => self.connect(now, due, place),
            Answer::Wait if clients.parked.len() < MAX_PARKED => {
                clients.passed(due.template, place);
                clients.parked.push_back((due, *place));
            }
            Answer::Wait | Answer::Silent => clients.refuse_due(now, due, NotBegun::UNRESOLVED),
        }
    }

    #[inline]
    fn connect(&mut self, now: Nanos, due: Due, place: &Place) {
        let Some(clients) = &mut self.clients else { return };
        clients.prefetch(&self.stack, due.template, place.position);
        let program = clients.program(due);
        let real = now + self.lag;
        let state = self.stack.app().apps.client(program, due.number as u32, real);
        let start = (program, state, Begun::new(due.at, real));
        if let Err(why) = self.connect_at(now, due, place, &start) {
            self.connect_elsewhere(now, due, *place, &start, why);
        }
    }

    /// One attempt of [`Side::connect`]. The error is the reason.
    #[inline]
    fn connect_at(
        &mut self,
        now: Nanos,
        due: Due,
        place: &Place,
        (program, state, begun): &(ProgramId, State, Begun),
    ) -> Result<(), usize> {
        let Some(clients) = &mut self.clients else { return Ok(()) };
        clients.passed(due.template, place);
        let of = (clients.templates[due.template].class, *program);
        self.stack.due(due.at.min(now));
        self.attempt(now, of, place.tuple, *state, *begun, None)?;
        if let Some(clients) = &mut self.clients {
            clients.begun += u64::from(!clients.is_scripted(due.template));
            clients.began(due, place);
        }
        Ok(())
    }

    /// Continues [`Side::connect`] after an attempt that failed.
    #[cold]
    fn connect_elsewhere(
        &mut self,
        now: Nanos,
        due: Due,
        mut place: Place,
        start: &(ProgramId, State, Begun),
        mut why: usize,
    ) {
        let mut tries = 1;
        loop {
            let Some(clients) = &mut self.clients else { return };
            if why == NotBegun::FULL {
                return clients.refuse_due(now, due, why);
            }
            if tries < MAX_TRIES && tries < clients.tuples_of(due.template) {
                // Uses the next tuple in the order, which the following flow then skips.
                tries += 1;
                match clients.place(due) {
                    Ok(next) => place = next,
                    Err(_) => tries = MAX_TRIES,
                }
                if let Some(host) = place.host {
                    self.link.add_host(host);
                }
            } else if clients.is_scripted(due.template) {
                return clients.busy.put_back(now, place.tuple, due);
            } else {
                if why == NotBegun::PORTS {
                    clients.exhausted(due.template, &place.tuple);
                }
                return clients.refuse(now, due.template, why);
            }
            match self.connect_at(now, due, &place, start) {
                Ok(()) => return,
                Err(error) => why = error,
            }
        }
    }

    /// Begins a flow, for an arrival or a call. The error is the reason; another tuple may succeed,
    /// unless it is [`NotBegun::FULL`].
    #[inline]
    fn attempt(
        &mut self,
        now: Nanos,
        (class, program): (ClassId, ProgramId),
        tuple: Tuple,
        state: State,
        begun: Begun,
        call: Option<&Call>,
    ) -> Result<(), usize> {
        if self.disabled.as_ref().is_some_and(|all| all.clients.contains(&tuple.local)) {
            return Err(NotBegun::DISABLED);
        }
        let app = self.stack.app_mut();
        // Set before `connect`, because a flow over UDP may begin and end within it.
        app.beginning = Some(begun);
        if let Some(call) = call {
            app.apps.calls_mut().begin(call);
        }
        let connected = self.stack.connect(now, class, tuple, state);
        let app = self.stack.app_mut();
        match connected {
            Ok(id) => {
                app.apps.calls_mut().started(id);
                app.began(id, program, begun);
                Ok(())
            }
            Err(error) => {
                app.beginning = None;
                app.apps.calls_mut().give_up();
                Err(match error {
                    ConnectError::InUse => NotBegun::PORTS,
                    ConnectError::Full => NotBegun::FULL,
                    ConnectError::Family => {
                        unreachable!("`Load::check` has compared the families")
                    }
                })
            }
        }
    }

    /// Begins flows that other flows' programs request, and wakes programs whose request is done.
    /// The calls are deferred because a program runs inside an event of its flow, where the stack
    /// cannot begin another flow (ADR 0049).
    #[cold]
    fn answer_calls(&mut self, now: Nanos) {
        if matches!(self.stopping, Stopping::Aborting(_) | Stopping::Done) {
            return self.drop_calls();
        }
        for _ in 0..self.stack.app().apps.calls().asked() {
            let Some(call) = self.stack.app_mut().apps.calls_mut().take() else { break };
            if !self.is_leaving(now, call.caller) {
                self.answer(now, call);
            }
        }
        while let Some(flow) = self.stack.app_mut().apps.calls_mut().take_answered() {
            if !self.is_leaving(now, flow) {
                self.stack.with(now, flow, |_, socket| socket.wake_at(now));
            }
        }
    }

    /// Gives flows another port or address whose connections move (RFC 9000 section 9). Deferred as
    /// calls are: only the side knows which are free.
    #[cold]
    fn move_flows(&mut self, now: Nanos) {
        while let Some((flow, to)) = self.stack.app_mut().apps.take_move() {
            let moved = self.move_flow(now, flow, to);
            self.stack.with(now, flow, |app, socket| app.rebound(socket, moved));
        }
    }

    /// Returns whether there was another end.
    fn move_flow(&mut self, now: Nanos, flow: FlowId, to: MigrateTo) -> bool {
        // Its last answers may end the flow, which then does not move.
        self.stack.with(now, flow, |app, socket| {
            squall_tcp::Application::event(app, socket, squall_tcp::Event::Settle);
        });
        let of = |app: &mut AppRecorder, socket: &mut Socket<'_, State>| {
            (app.apps.program(socket.state()), socket.tuple())
        };
        let Some((program, tuple)) = self.stack.with(now, flow, of) else { return false };
        let Some(clients) = &mut self.clients else { return false };
        let all = &clients.templates[..clients.first_scripted];
        let Some(number) = all.iter().position(|of| of.program == program) else { return false };
        for _ in 0..MAX_TRIES {
            let Some(place) = clients.another_end(number, &tuple, to) else { break };
            let disabled = self.disabled.as_ref();
            if disabled.is_some_and(|all| all.clients.contains(&place.tuple.local)) {
                continue;
            }
            if self.stack.rebind(flow, &place.tuple).is_ok() {
                if let Some(host) = place.host {
                    self.link.add_host(host);
                }
                return true;
            }
        }
        false
    }

    /// Drops all calls, because all flows are being aborted.
    fn drop_calls(&mut self) {
        if let Some(clients) = &mut self.clients {
            for call in self.stack.app().apps.calls().waiting() {
                if let Some(number) = clients.number_of(call, &self.gone) {
                    clients.templates[number].not_begun.add(NotBegun::UNRESOLVED, 1);
                }
            }
        }
        self.stack.app_mut().apps.calls_mut().drop_all();
    }

    /// Whether the flow will be aborted because its template was removed.
    fn is_leaving(&mut self, now: Nanos, flow: FlowId) -> bool {
        let leaving = &self.leaving.programs;
        let of_it = |app: &mut AppRecorder, socket: &mut Socket<'_, State>| {
            leaving.contains(&app.apps.program(socket.state()))
        };
        !leaving.is_empty() && self.stack.with(now, flow, of_it) == Some(true)
    }

    fn answer(&mut self, now: Nanos, call: Call) {
        let Some(clients) = &mut self.clients else { return };
        // The template may have been removed after the call.
        let Some(number) = clients.number_of(&call, &self.gone) else {
            return self.stack.app_mut().apps.calls_mut().refuse(&call);
        };
        let full = self.stack.active() as u64 >= clients.limit;
        let mut why = if full { NotBegun::LIMIT } else { NotBegun::PORTS };
        let mut tried = None;
        for _ in 0..if full { 0 } else { MAX_TRIES } {
            let Some(clients) = &mut self.clients else { return };
            let caller = self.link.host_of(call.tuple.local);
            let place = match clients.called(number, &call.tuple, caller) {
                Ok(place) => place,
                Err(reason) => {
                    if tried.is_none() {
                        why = reason;
                    }
                    break;
                }
            };
            let tuple = place.tuple;
            if let Some(host) = place.host {
                self.link.add_host(host);
            }
            match self.link.resolve_for(now, &tuple) {
                Answer::Mac(_) => {}
                Answer::Wait => return self.stack.app_mut().apps.calls_mut().defer(call),
                Answer::Silent => {
                    why = NotBegun::UNRESOLVED;
                    break;
                }
            }
            let of = &clients.templates[number];
            let (of, nth) = ((of.class, of.program), of.number_of_call(clients.seat));
            let real = now + self.lag;
            let state = self.stack.app().apps.client(of.1, nth, real);
            match self.attempt(now, of, tuple, state, Begun::new(real, real), Some(&call)) {
                Ok(()) => {
                    if let Some(clients) = &mut self.clients {
                        clients.templates[number].called += 1;
                    }
                    return;
                }
                Err(error) => (why, tried) = (error, Some(tuple)),
            }
            if why == NotBegun::FULL {
                break;
            }
        }
        let Some(clients) = &mut self.clients else { return };
        if let Some(tuple) = tried.filter(|_| why == NotBegun::PORTS) {
            clients.exhausted(number, &tuple);
        }
        clients.templates[number].not_begun.add(why, 1);
        self.stack.app_mut().apps.calls_mut().refuse(&call);
    }

    /// Retries flows whose next hop was resolved or has failed. Without such a change, a search of
    /// the waiting flows in each turn would find none.
    fn unpark(&mut self, now: Nanos) {
        let known = self.link.statistics.resolved + self.link.statistics.resolution_failed;
        let Some(clients) = &mut self.clients else { return };
        if std::mem::replace(&mut clients.retried_at, known) == known {
            return;
        }
        self.stack.app_mut().apps.calls_mut().retry();
        for _ in 0..clients.parked.len() {
            let Some(clients) = &mut self.clients else { return };
            let Some((due, place)) = clients.parked.pop_front() else { return };
            match self.link.resolve_for(now, &place.tuple) {
                Answer::Mac(_) => self.connect(now, due, &place),
                Answer::Wait => clients.parked.push_back((due, place)),
                Answer::Silent => clients.refuse_due(now, due, NotBegun::UNRESOLVED),
            }
        }
    }

    fn steer(&mut self, now: Nanos) {
        let Some(clients) = &mut self.clients else { return };
        let (stack, classes) = (&self.stack, &self.classes);
        let (first, begun) = (clients.first_scripted, clients.begun);
        clients.arrivals.steer(now, || {
            // Scripts do not count for a target bandwidth, because they keep their own times.
            let own = classes[..first].iter();
            let of = own.filter_map(|[client, _]| Some(stack.counters(client.as_ref()?.0)));
            (of.map(|counters| counters.delivered + counters.acked).sum(), begun)
        });
    }

    /// When the next action is due without input; `None`: never.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        let leaves = !self.leaving.programs.is_empty() || !self.unbound.addresses.is_empty();
        if leaves
            || self.stack.app().has_ended()
            || !self.stack.app().apps.calls().is_idle()
            || self.stack.app().apps.has_moves()
            || self.stack.has_output()
            || self.link.has_answers()
        {
            return Some(self.now);
        }
        let arrivals = self.clients.as_ref().and_then(Clients::next_due);
        let end = match self.stopping {
            Stopping::Ending(until, _) | Stopping::Draining(until) => Some(until),
            Stopping::Aborting(_) => Some(self.now),
            Stopping::No | Stopping::Done => None,
        };
        let unused = self.host_use.last_since.filter(|_| !self.host_use.ended);
        let unused = unused.map(|since| since + self.drain);
        // The stack gives a lower bound, which after an idle period can be in the past. Its timers up
        // to `now` have expired, so a bound before `now` would only look like overdue work.
        let timers = self.stack.next_due().map(|due| due.max(self.now));
        [timers, self.link.next_due(), arrivals, end, unused].into_iter().flatten().min()
    }

    /// Whether frames wait to be sent.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.stack.has_output() || self.link.has_answers()
    }

    /// Whether an acknowledgment of much data is overdue.
    #[inline]
    pub fn is_ack_overdue(&self) -> bool {
        self.stack.is_ack_overdue()
    }

    /// Sends until no frame waits or the output is full.
    #[inline]
    pub fn transmit(&mut self, now: Nanos, out: &mut impl FrameOutput) {
        if self.link.has_answers() {
            // Replies come first, because the stack may fill the output, and peers wait for a MAC
            // address.
            self.link.transmit(out);
        }
        self.stack.transmit(now, &mut Framer { link: &mut self.link, out, now });
    }

    /// Stops the arrivals. Open flows get the load's drain time to end before they are aborted.
    pub fn stop(&mut self, now: Nanos) {
        if !matches!(self.stopping, Stopping::No | Stopping::Ending(..)) {
            return;
        }
        self.stopped = true;
        self.stopping = Stopping::Draining(now + self.drain);
        // Flows due before the stop still begin, even if the worker is notified late: otherwise
        // they would count as late.
        self.begin(now, usize::MAX);
        let real = now + self.lag;
        self.end_arrivals(real);
        self.stop_arrivals(real);
        self.go_on_stopping(now);
    }

    fn stop_arrivals(&mut self, now: Nanos) {
        if let Some(clients) = &mut self.clients {
            clients.stop_arrivals(now);
            // Each waiting flow gets a reason, because every arrival must be in one counter at the
            // end.
            while let Some((due, _)) = clients.parked.pop_front() {
                clients.refuse(now, due.template, NotBegun::UNRESOLVED);
            }
            for due in std::mem::take(&mut clients.busy).waiting.into_values().flatten() {
                clients.refuse(now, due.template, NotBegun::PORTS);
            }
        }
    }

    /// A counter that changes with every segment of any flow.
    fn activity(&self) -> u64 {
        let classes = self.classes.iter().flatten().flatten();
        classes
            .map(|(class, _)| self.stack.counters(*class))
            .map(|c| c.segments_in + c.segments_out)
            .sum()
    }

    /// Aborts open flows at once, without the drain time.
    pub fn abort(&mut self, now: Nanos) {
        self.stop(now);
        if let Stopping::Draining(_) = self.stopping {
            self.stopping = Stopping::Draining(now);
        }
        self.go_on_stopping(now);
    }

    /// Whether no flow is open and no flow will begin.
    pub fn is_over(&self) -> bool {
        self.stopping == Stopping::Done
    }

    /// Whether the side is stopping, or has begun all its flows.
    pub fn is_stopping(&self) -> bool {
        self.stopping != Stopping::No
    }

    fn finish(&mut self) {
        self.stopping = Stopping::Done;
        self.host_use.set(false);
    }

    fn go_on_stopping(&mut self, now: Nanos) {
        match self.stopping {
            Stopping::Ending(..) | Stopping::Draining(_) if self.stack.active() == 0 => {
                self.finish();
            }
            Stopping::Ending(until, before) if now >= until => {
                let activity = self.activity();
                // Timers count as activity: a program's delay, or a retransmission.
                let goes_on = activity != before || self.stack.next_due().is_some();
                let then = now + self.drain.max(ACTIVITY_INTERVAL);
                self.stopping = if goes_on {
                    Stopping::Ending(then, activity)
                } else {
                    Stopping::Draining(now)
                };
            }
            // Flows in TIME-WAIT are not waited for, because they have completed.
            Stopping::Draining(until)
                if now >= until || self.stack.active() == self.stack.app().apps.lingering() =>
            {
                self.stack.app_mut().stopping = true;
                self.stopping = Stopping::Aborting(0);
                self.drop_calls();
            }
            Stopping::Aborting(_) if self.stack.active() == 0 && !self.has_output() => {
                self.finish();
            }
            // Wait for the resets only: flows whose programs send without end always have output.
            Stopping::Aborting(from) if !self.stack.has_answers() => {
                // Counts flows, not numbers, because most records may be unused.
                let (mut at, mut aborted) = (from, 0);
                let records = self.stack.records();
                while aborted < ABORTED_AT_ONCE && at < records {
                    aborted += u32::from(
                        self.stack.with(now, FlowId(at), |_, socket| socket.abort()).is_some(),
                    );
                    at += 1;
                }
                self.stopping = Stopping::Aborting(if at >= records { 0 } else { at });
            }
            _ => {}
        }
    }

    /// Whether programs on this side act without input from their peers.
    pub fn acts(&self) -> bool {
        self.stack.app().apps.delaying() > 0 || self.has_output()
    }

    /// Number of open flows.
    pub fn active(&self) -> usize {
        self.stack.active()
    }

    /// Number of lanes: programs that share connections (HTTP/2 and HTTP/3).
    pub fn lanes(&self) -> usize {
        self.stack.app().apps.lanes()
    }

    /// Number of streams of HTTP/2 and HTTP/3 that have begun.
    pub fn streams(&self) -> u64 {
        self.stack.app().apps.streams()
    }

    /// The open TCP flows among `most` records from number `from`, without those in TIME-WAIT.
    pub fn look(
        &self,
        now: Nanos,
        from: u32,
        most: u32,
    ) -> impl Iterator<Item = OpenFlow> + use<'_> {
        let began = move |tcp: &FlowInfo| {
            (!tcp.passive).then(|| self.stack.app().lasted(tcp.id, now)).flatten()
        };
        self.stack.look(from, most).map(move |tcp| OpenFlow { lasted: began(&tcp), tcp })
    }

    /// Number of flow records so far, including those of ended flows.
    pub fn records(&self) -> u32 {
        self.stack.records()
    }

    /// Number of flows whose addresses and ports cannot be reused yet.
    pub fn time_wait(&self) -> usize {
        self.stack.time_wait()
    }

    /// Memory used by flows, octets.
    pub fn memory(&self) -> usize {
        self.stack.memory() + self.stack.app().memory()
    }

    /// Counters so far, per template.
    fn tallies(&self) -> Tallies {
        let of = |class: &Option<(ClassId, ProgramId)>, client: bool| match class {
            Some((class, program)) => {
                let (recorded, tcp) =
                    (self.stack.app().apps.observer().of(*program), self.stack.counters(*class));
                Tally {
                    attempted: if client { tcp.attempts } else { tcp.accepts },
                    completed: recorded.completed,
                    received_octets: recorded.received_octets,
                }
            }
            None => Tally::default(),
        };
        self.classes.iter().map(|[client, server]| [of(client, true), of(server, false)]).collect()
    }

    /// Ends the arrivals; flows that were due before `until` and did not begin are late.
    pub fn give_up_before(&mut self, until: Nanos) {
        if let Some(clients) = &mut self.clients {
            clients.stop_arrivals(until);
        }
    }

    /// Outcomes of flows so far; `full`: includes histograms.
    pub fn statistics(&self, full: bool) -> Statistics {
        let recorder = self.stack.app().apps.observer();
        let of = |class: &Option<(ClassId, ProgramId)>, client: bool| match class {
            Some((class, program)) => {
                let recorded = recorder.of(*program);
                let mut all = if full { recorded.clone() } else { recorded.light() };
                let tcp = self.stack.counters(*class);
                all.attempted = if client { tcp.attempts } else { tcp.accepts };
                let plain = match self.stack.app().apps.transport(*program) {
                    Transport::Tcp => tcp.acked,
                    Transport::Udp => tcp.sent,
                };
                let plain = plain.saturating_sub(all.proxied_octets);
                // TLS sessions count their plaintext themselves, because TCP counts ciphertext.
                all.sent_octets = all.tls.as_ref().map_or(plain, |tls| tls.sent_octets);
                all.tcp = tcp.clone();
                all.http2 = self.stack.app().apps.http2_counts(*program).map(Box::new);
                all.http3 = self.stack.app().apps.http3_counts(*program).map(Box::new);
                if let Some(http3) = &all.http3 {
                    all.sent_octets = http3.sent_octets;
                }
                all
            }
            None => FlowStatistics::default(),
        };
        let mut templates: Vec<_> = self
            .classes
            .iter()
            .map(|[client, server]| TemplateStatistics {
                client: of(client, true),
                server: of(server, false),
            })
            .collect();
        if let Some(clients) = &self.clients {
            let is_own =
                is_own(&clients.templates, &clients.servers, &clients.rounds, clients.seat);
            let overdue = clients.arrivals.overdue(self.now, is_own);
            for (i, (template, client)) in templates.iter_mut().zip(&clients.templates).enumerate()
            {
                let mut not_begun = client.not_begun;
                not_begun.add(NotBegun::LATE, clients.arrivals.late(i));
                template.client.not_begun = not_begun;
                template.client.waiting = overdue[i];
            }
            let busy = clients.busy.waiting.values().flatten();
            for due in clients.parked.iter().map(|(due, _)| due).chain(busy) {
                templates[due.template].client.waiting += 1;
            }
            let calls = self.stack.app().apps.calls().waiting();
            for number in calls.filter_map(|call| clients.number_of(call, &self.gone)) {
                templates[number].client.waiting += 1;
            }
        }
        let (steady, tallies) = match &self.clients {
            Some(_) => self.steady.so_far(self.real(), &self.tallies()),
            None => (Nanos::ZERO, Vec::new()),
        };
        templates
            .iter_mut()
            .zip(tallies)
            .for_each(|(template, tally)| template.client.steady = tally);
        Statistics {
            templates,
            steady,
            seconds: if full && self.is_over() {
                self.steady.seconds()
            } else {
                Default::default()
            },
            link: LinkStatistics {
                unknown_clients: self.stack.app().apps.unknown_peers(),
                ..self.link.statistics
            },
            strays: self.stack.strays().clone(),
            exhausted: self
                .clients
                .iter()
                .flat_map(|c| c.pools.iter().map(|p| p.exhausted))
                .collect(),
            failed: recorder.failed().to_vec(),
            served: recorder.served().clone(),
            hosted: match &self.clients {
                Some(clients) if full => {
                    let of = |one: &HostedFlow| HostedFlow {
                        failure: recorder.client_failure(one.number),
                        ..*one
                    };
                    clients.hosted.values().map(of).collect()
                }
                _ => Vec::new(),
            },
            elapsed: self.real().saturating_sub(self.settings.start),
            arrivals: self.clients.as_ref().map_or(Nanos::ZERO, |clients| {
                let until = self.arrivals_until.unwrap_or(self.real().min(clients.arrivals.end()));
                until.saturating_sub(self.settings.start)
            }),
            pacing: self
                .clients
                .as_ref()
                .map(|clients| clients.arrivals.pacing())
                .unwrap_or_default(),
            over: self.is_over(),
        }
    }
}

/// Whether the checksum field has only the sum of the pseudo-header, as left by a host whose NIC
/// completes it. On veth no NIC does, because the frame never leaves the kernel.
fn has_partial_checksum(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let (header, protocol, addresses, len) = match packet {
        [0x45..=0x4f, ..] if packet.len() >= 20 => {
            let header = usize::from(packet[0] & 15) * 4;
            let total = usize::from(be16(packet, 2));
            (header, packet[9], &packet[12..20], total.saturating_sub(header))
        }
        [0x60..=0x6f, ..] if packet.len() >= 40 => {
            (40, packet[6], &packet[8..40], usize::from(be16(packet, 4)))
        }
        _ => return false,
    };
    let at = header
        + match protocol {
            TCP => 16,
            UDP => 6,
            _ => return false,
        };
    let expected = fold(sum(addresses) + u64::from(protocol) + len as u64);
    packet.get(at..at + 2).is_some_and(|octets| octets == expected.to_be_bytes())
}

/// The side's own pools that templates from number `first` on use and earlier ones do not; the
/// flag: whether a pool is a client pool, which is divided among parts. `ready`: client pools,
/// server pools.
fn own_pools(
    load: &Load,
    settings: SideSettings,
    first: usize,
    ready: [&[Tuples]; 2],
) -> impl Iterator<Item = (Tuples, bool)> {
    let (of_clients, of_servers) = settings.role.parts(settings.clients, settings.servers);
    let own = |part: Part,
               pool: fn(&Template) -> Option<usize>,
               ready: &[Tuples],
               chosen: &dyn Fn(&usize) -> bool|
     -> Vec<_> {
        let of = |templates: Range<usize>| -> BTreeSet<usize> {
            let chosen = templates.filter(|number| part.has(load, *number));
            chosen.filter_map(|number| pool(&load.templates[number])).collect()
        };
        let new = &of(first..load.templates.len()) - &of(0..first);
        new.into_iter().filter(chosen).map(|number| ready[number].clone()).collect()
    };
    let [clients, servers] = ready;
    // Addresses of hosts come from their table.
    let known_clients = |pool: &usize| load.clients[*pool].hosts.is_none();
    let known_servers = |pool: &usize| load.servers[*pool].hosts.is_none();
    let begins = |t: &Template| t.ends.has_clients().then_some(t.clients);
    let serves = |t: &Template| t.ends.has_servers().then_some(t.servers);
    let clients = own(of_clients, begins, clients, &known_clients);
    let servers = own(of_servers, serves, servers, &known_servers);
    let both = clients.into_iter().map(|pool| (pool, true));
    both.chain(servers.into_iter().map(|pool| (pool, false)))
}

/// All addresses of the pool's family.
fn any_address(pool: &PoolOf) -> RangeInclusive<IpAddr> {
    match pool.ranges.first().is_none_or(|range| range.first().is_ipv4()) {
        true => Ipv4Addr::UNSPECIFIED.into()..=Ipv4Addr::BROADCAST.into(),
        false => Ipv6Addr::UNSPECIFIED.into()..=Ipv6Addr::from_bits(u128::MAX).into(),
    }
}

fn end_of(load: &Load, start: Nanos) -> Option<Nanos> {
    // At most half, because the drain time is added to it without a check for overflow.
    load.limits.duration.map(|duration| Nanos(start.0.saturating_add(duration.0).min(u64::MAX / 2)))
}

impl PendingTuples {
    fn put(&mut self, now: Nanos, tuple: Tuple, due: Due) {
        self.waiting.entry(tuple).or_default().push_back(due);
        self.again.push_back((now + BUSY_RETRY, tuple));
    }

    /// Puts a conversation back at the front of its queue.
    fn put_back(&mut self, now: Nanos, tuple: Tuple, due: Due) {
        self.waiting.entry(tuple).or_default().push_front(due);
        self.again.push_back((now + BUSY_RETRY, tuple));
    }

    /// The next conversation to retry.
    #[inline]
    fn take(&mut self, now: Nanos) -> Option<Due> {
        self.again.front().filter(|(at, _)| *at <= now)?;
        self.take_first()
    }

    #[cold]
    fn take_first(&mut self) -> Option<Due> {
        let (_, tuple) = self.again.pop_front()?;
        let waiting = self.waiting.get_mut(&tuple)?;
        let due = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&tuple);
        }
        due
    }
}

impl Pool {
    fn new((pool, tuples): (&PoolOf, &Tuples)) -> Self {
        let busy = vec![0; tuples.addresses().div_ceil(64) as usize];
        let next = pool.shared.then_some(0);
        let exhausted = Exhausted::default();
        Self { tuples: tuples.clone(), next, busy, exhausted, hosts: None }
    }
}

impl HostUse {
    fn add(&mut self, table: &Arc<HostTable>) {
        if self.tables.iter().any(|known| Arc::ptr_eq(known, table)) {
            return;
        }
        if !self.ended {
            table.begin_use();
        }
        self.tables.push(table.clone());
    }

    /// Whether flows may follow. If not, hosts may give their addresses back.
    fn set(&mut self, in_use: bool) {
        if std::mem::replace(&mut self.ended, !in_use) == in_use {
            for table in &self.tables {
                if in_use { table.begin_use() } else { table.end_use() }
            }
        }
    }

    /// Whether other sides or sources use hosts of one of the tables.
    fn has_others(&self) -> bool {
        let own = u32::from(!self.ended);
        self.tables.iter().any(|table| table.users() > own)
    }
}

impl HostServers {
    fn new(table: &Arc<HostTable>) -> Self {
        Self { table: table.clone(), at: 0, known: HashMap::new() }
    }

    /// The address of the next host in turn that has one.
    fn next(&mut self) -> Option<IpAddr> {
        let host = self.table.next(&mut self.at)?;
        // A server may give another address with each lease, so lost ones are dropped.
        if self.known.len() > 2 * self.table.hosts() {
            let table = &self.table;
            self.known.retain(|address, number| {
                table.get(*number).is_some_and(|host| host.address == *address)
            });
        }
        self.known.insert(host.address, host.number);
        Some(host.address)
    }

    /// Whether a host has the address, to which a flow has begun.
    fn has(&self, address: IpAddr) -> bool {
        let host = self.known.get(&address).and_then(|number| self.table.get(*number));
        host.is_some_and(|host| host.address == address)
    }
}

/// The server of the next flow to pool number `pool`, whose servers are hosts: `wanted`, if one of
/// them has this address, otherwise the next in turn. The error is the reason: no host has an
/// address.
fn next_server(
    all: &mut [Option<HostServers>],
    pool: usize,
    wanted: Option<IpAddr>,
) -> Result<IpAddr, usize> {
    let Some(HostServers { table, .. }) = &all[pool] else { return Err(NotBegun::NO_HOST) };
    // Flows of another pool of these hosts may have begun to it.
    let is_known = |address: &IpAddr| {
        let mut same = all.iter().flatten().filter(|of| Arc::ptr_eq(&of.table, table));
        same.any(|of| of.has(*address))
    };
    if let Some(wanted) = wanted.filter(is_known) {
        return Ok(wanted);
    }
    all[pool].as_mut().and_then(HostServers::next).ok_or(NotBegun::NO_HOST)
}

impl HostClients {
    /// The next host in turn that has an address.
    fn next(&mut self) -> Option<HostEnd> {
        Some((self.on_link, self.table.next(&mut self.at)?))
    }

    /// The number of the host's next port.
    fn port(&mut self, (_, host): HostEnd) -> u64 {
        let Some(ports) = self.ports.get_mut(host.number as usize) else { return 0 };
        *ports = ports.wrapping_add(1);
        u64::from(*ports - 1)
    }
}

impl Clients {
    /// Drops a template's waiting flows.
    fn give_up(&mut self, now: Nanos, template: usize) {
        let (client, others) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(due, _)| due.template == template);
        self.parked = others;
        let client: VecDeque<(Due, Place)> = client;
        client.iter().for_each(|_| self.refuse(now, template, NotBegun::UNRESOLVED));
    }

    /// The next flow that is due by `now`.
    #[inline]
    fn take(&mut self, now: Nanos) -> Option<Due> {
        let is_own = is_own(&self.templates, &self.servers, &self.rounds, self.seat);
        self.arrivals.take(now, is_own)
    }

    /// The ends of a due flow: the first unused position in the template's order that is this
    /// worker's and not before the flow's own. The error is the reason: not found, or no host has an
    /// address.
    #[inline]
    fn place(&mut self, due: Due) -> Result<Place, usize> {
        let template = &self.templates[due.template];
        if template.script.is_some() || template.of_hosts || !self.seat.is_only() {
            return self.place_otherwise(due);
        }
        let shared = self.pools[template.pool].next;
        let position = shared.unwrap_or_else(|| due.number.max(template.next));
        let rounds = &mut self.rounds[due.template];
        let tuple = template.tuple(&self.servers[template.servers], position, rounds);
        Ok(Place { tuple, position, host: None })
    }

    /// [`Clients::place`] of conversations and hosts, and of one of several workers.
    fn place_otherwise(&mut self, due: Due) -> Result<Place, usize> {
        if let Some(part) = self.part(due) {
            let part = *part;
            return self.place_of_part(due.template, &part);
        }
        let template = &self.templates[due.template];
        let servers = &self.servers[template.servers];
        let shared = self.pools[template.pool].next;
        let first = shared.unwrap_or_else(|| due.number.max(template.next));
        if template.of_hosts {
            return self.place_of_host(due.template, first);
        }
        let rounds = &mut self.rounds[due.template];
        let tuple = |position| (position, template.tuple(servers, position, rounds));
        let last = first.saturating_add(MAX_SEARCH * self.seat.among().1);
        let mut tuples = (first..last).map(tuple);
        let found = tuples.find(|(_, tuple)| self.seat.has(tuple));
        let (position, tuple) = found.ok_or(NotBegun::PORTS)?;
        Ok(Place { tuple, position, host: None })
    }

    /// As [`Clients::place`], for a conversation of a script.
    fn place_of_part(&mut self, template: usize, part: &Client) -> Result<Place, usize> {
        let of = &self.templates[template];
        if !of.hosts[0] {
            return Ok(Place { tuple: part.tuple, position: 0, host: None });
        }
        let hosts = self.pools[of.pool].hosts.as_mut().ok_or(NotBegun::NO_HOST)?;
        let host = match part.party.and_then(|party| self.parties.get(&party)) {
            Some(Ok((on_link, known))) => {
                let now = hosts.table.get(known.number);
                now.filter(|now| now.address == known.address).map(|now| (*on_link, now))
            }
            Some(Err((why, _))) => return Err(*why),
            None => hosts.next(),
        };
        let host = host.ok_or(NotBegun::NO_HOST)?;
        let tuple = Tuple { local: host.1.address, ..part.tuple };
        Ok(Place { tuple, position: 0, host: Some(host) })
    }

    /// Records a conversation that has begun from a host, for its server, before its first packet
    /// leaves.
    #[inline]
    fn began(&mut self, due: Due, place: &Place) {
        let Some(host) = place.host else { return };
        let Some(Client { number, party, .. }) = self.part(due).copied() else { return };
        if let Some(hosts) = &self.pools[self.templates[due.template].pool].hosts {
            hosts.table.begin_conversation(ends_at_client(&place.tuple), number);
        }
        if let Some(party) = party {
            self.parties.entry(party).or_insert(Ok(host));
        }
        let client = Some(host.1.address);
        let begun = HostedFlow { number, client, not_begun: None, failure: None };
        self.hosted.insert(number, begun);
    }

    /// As [`Clients::place`], for ends that are hosts.
    fn place_of_host(&mut self, template: usize, first: u64) -> Result<Place, usize> {
        let (of, rounds) = (&self.templates[template], &mut self.rounds[template]);
        let [client_hosts, server_hosts] = of.hosts;
        let last = first.saturating_add(MAX_SEARCH * self.seat.among().1);
        for position in first..last {
            let server = match server_hosts {
                true => Some(next_server(&mut self.server_hosts, of.servers, None)?),
                false => None,
            };
            let (client, host) = match client_hosts {
                true => {
                    let hosts = self.pools[of.pool].hosts.as_mut().ok_or(NotBegun::NO_HOST)?;
                    let host = hosts.next().ok_or(NotBegun::NO_HOST)?;
                    ((host.1.address, of.tuples.port(hosts.port(host))), Some(host))
                }
                false => (of.client(position, rounds), None),
            };
            let tuple = of.tuple_of(&self.servers[of.servers], position, client, rounds);
            let tuple = Tuple { remote: server.unwrap_or(tuple.remote), ..tuple };
            if self.seat.is_only() || self.seat.has(&tuple) {
                return Ok(Place { tuple, position, host });
            }
        }
        Err(NotBegun::PORTS)
    }

    /// Marks a position as used or busy.
    #[inline]
    fn passed(&mut self, template: usize, place: &Place) {
        let of = &mut self.templates[template];
        let next = self.pools[of.pool].next.as_mut().unwrap_or(&mut of.next);
        *next = (*next).max(place.position + 1);
    }

    /// Prefetches the slots of the flows after `position`, several at a time, because the table of
    /// a million flows does not fit the near caches, and is accessed in random order.
    #[inline]
    fn prefetch(&mut self, stack: &Stack<AppRecorder>, template: usize, position: u64) {
        let at = &mut self.templates[template];
        if position < at.approached {
            return;
        }
        at.approached = position + PREFETCHED;
        // Only for large tables: in a table that fits the near caches, the extra reads would just
        // cost time.
        if stack.exceeds_cache() {
            self.prefetch_after(stack, template, position);
        }
    }

    #[inline(never)]
    fn prefetch_after(&mut self, stack: &Stack<AppRecorder>, template: usize, position: u64) {
        let (at, rounds) = (&self.templates[template], &mut self.rounds[template]);
        if !self.seat.is_only() || template >= self.first_scripted || at.of_hosts {
            return;
        }
        let (servers, next) = (&self.servers[at.servers], position + 1..=position + PREFETCHED);
        stack.prefetch_new(next.map(|next| at.tuple(servers, next, rounds)));
    }

    /// The template that a call requests.
    fn number_of(&self, call: &Call, gone: &BTreeSet<usize>) -> Option<usize> {
        let own = self.templates.iter().take(self.first_scripted).enumerate();
        own.filter(|(number, of)| of.begins && !gone.contains(number))
            .find(|(_, of)| of.name == *call.template)
            .map(|(number, _)| number)
    }

    /// The ends of the next flow that a flow with the ends `caller` begins: the same client and
    /// server, if they are in the template's pools. `host`: the caller, if it is a host. The error
    /// is the reason: this worker has none of its ports, or no host has an address.
    fn called(
        &mut self,
        number: usize,
        caller: &Tuple,
        host: Option<HostEnd>,
    ) -> Result<Place, usize> {
        let (of, rounds) = (&mut self.templates[number], &mut self.rounds[number]);
        let servers = &self.servers[of.servers];
        let [client_hosts, server_hosts] = of.hosts;
        let tries = MAX_SEARCH * self.seat.among().1;
        for _ in 0..tries {
            let nth = of.ports_tried;
            of.ports_tried += 1;
            let mut tuple = of.tuple(servers, nth, rounds);
            let mut client = None;
            if client_hosts {
                let hosts = self.pools[of.pool].hosts.as_mut().ok_or(NotBegun::NO_HOST)?;
                let same = host.filter(|host| host.0 == hosts.on_link);
                let host = same.or_else(|| hosts.next()).ok_or(NotBegun::NO_HOST)?;
                let port = of.tuples.port(hosts.port(host));
                tuple = of.tuple_of(servers, nth, (host.1.address, port), rounds);
                client = Some(host);
            } else if of.tuples.index_of(caller.local).is_some() {
                (tuple.local, tuple.local_port) = (caller.local, of.tuples.port(nth));
            }
            if server_hosts {
                let all = &mut self.server_hosts;
                tuple.remote = next_server(all, of.servers, Some(caller.remote))?;
            } else if servers.index_of(caller.remote).is_some() {
                tuple.remote = caller.remote;
            }
            if self.seat.is_only() || self.seat.has(&tuple) {
                return Ok(Place { tuple, position: 0, host: client });
            }
        }
        Err(NotBegun::PORTS)
    }

    /// The next end for a flow of a template that moves, with which it stays this worker's: a port
    /// from the last one of the pool down, of its own or of another address. `None`: the worker has
    /// none of them.
    fn another_end(&mut self, number: usize, flow: &Tuple, to: MigrateTo) -> Option<Place> {
        let of = &mut self.templates[number];
        let (addresses, ports) = (of.tuples.addresses(), of.tuples.ports());
        let all = if to == MigrateTo::Port { ports } else { of.tuples.len() };
        let tries = (MAX_SEARCH * self.seat.among().1).min(all);
        for _ in 0..tries {
            of.ends_moved += 1;
            let port = of.tuples.port(ports - of.ends_moved % ports);
            let mut tuple = Tuple { local_port: port, ..*flow };
            let mut host = None;
            match (to, &mut self.pools[of.pool].hosts) {
                (MigrateTo::Port, _) => {}
                (MigrateTo::Address, Some(hosts)) => {
                    let next = hosts.next()?;
                    (tuple.local, host) = (next.1.address, Some(next));
                }
                (MigrateTo::Address, None) => {
                    let others = addresses.checked_sub(1).filter(|others| *others > 0)?;
                    // Mixed, because the port advances with the same number.
                    let draw = squall_units::mix(of.ends_moved, 0) % others;
                    let next = of.tuples.index_of(flow.local)? + 1 + draw;
                    tuple.local = of.tuples.address(next % addresses);
                }
            }
            let moved = match to {
                MigrateTo::Port => tuple.local_port != flow.local_port,
                MigrateTo::Address => tuple.local != flow.local,
            };
            if moved && (self.seat.is_only() || self.seat.has(&tuple)) {
                return Some(Place { tuple, position: 0, host });
            }
        }
        None
    }

    fn stop_arrivals(&mut self, now: Nanos) {
        self.arrivals.stop(now, is_own(&self.templates, &self.servers, &self.rounds, self.seat));
    }

    /// The client's program.
    #[inline]
    fn program(&self, due: Due) -> ProgramId {
        self.part(due).map_or(self.templates[due.template].program, |part| part.program)
    }

    /// The conversation that is due, if the template belongs to a script.
    #[inline]
    fn part(&self, due: Due) -> Option<&Client> {
        let all = &self.scripts[self.templates[due.template].script?];
        Some(&all[(due.number % all.len() as u64) as usize])
    }

    /// Whether the template belongs to a script.
    #[inline]
    fn is_scripted(&self, template: usize) -> bool {
        template >= self.first_scripted
    }

    fn next_due(&self) -> Option<Nanos> {
        let again = self.busy.again.front().map(|(at, _)| *at);
        let is_own = is_own(&self.templates, &self.servers, &self.rounds, self.seat);
        self.arrivals.next_due(is_own).into_iter().chain(again).min()
    }

    /// Whether an earlier conversation with the same tuple waits for it; then this one has to wait
    /// too.
    #[inline]
    fn waits(&mut self, now: Nanos, due: Due) -> bool {
        if self.busy.waiting.is_empty() {
            return false;
        }
        if self.templates[due.template].of_hosts {
            return false;
        }
        let Ok(Place { tuple, .. }) = self.place(due) else { return false };
        let waits = self.busy.waiting.contains_key(&tuple);
        if waits {
            self.busy.put(now, tuple, due);
        }
        waits
    }

    /// Number of tuples that a template's flows can have; a conversation has one.
    fn tuples_of(&self, template: usize) -> u64 {
        if self.is_scripted(template) {
            return 1;
        }
        let template = &self.templates[template];
        template.tuples.len().saturating_mul(self.servers[template.servers].addresses())
    }

    #[cold]
    fn exhausted(&mut self, template: usize, tuple: &Tuple) {
        let pool = &mut self.pools[self.templates[template].pool];
        pool.exhausted.flows += 1;
        if let Some(index) = pool.tuples.index_of(tuple.local) {
            let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
            pool.exhausted.addresses += u64::from(pool.busy[word] & bit == 0);
            pool.busy[word] |= bit;
        }
    }

    /// The hosts with these addresses have lost them: no conversation of their parties begins any
    /// more, although a host may get its address again.
    fn lose_parties(&mut self, addresses: &HashSet<IpAddr>) {
        for party in self.parties.values_mut() {
            if matches!(party, Ok((_, host)) if addresses.contains(&host.address)) {
                *party = Err((NotBegun::NO_HOST, Failure::AddressLost.name()));
            }
        }
    }

    /// Refuses a due flow. If it is a conversation of a host, the reason is kept for it, and for
    /// later ones of its party.
    #[cold]
    fn refuse_due(&mut self, now: Nanos, due: Due, why: usize) {
        let part = self.part(due).copied().filter(|_| self.templates[due.template].hosts[0]);
        if let Some(Client { number, party, .. }) = part {
            let reason = match party.and_then(|party| self.parties.get(&party)) {
                Some(&Err((_, reason))) => reason,
                Some(Ok(_)) if why == NotBegun::NO_HOST => Failure::AddressLost.name(),
                _ => NotBegun::NAMES[why],
            };
            if let Some(party) = party {
                self.parties.insert(party, Err((why, reason)));
            }
            let refused =
                HostedFlow { number, client: None, not_begun: Some(reason), failure: None };
            self.hosted.insert(number, refused);
        }
        self.refuse(now, due.template, why);
    }

    #[cold]
    fn refuse(&mut self, now: Nanos, template: usize, why: usize) {
        self.templates[template].not_begun.add(why, 1);
        self.arrivals.ended(template, now + BACK_OFF);
    }
}

impl ClientTemplate {
    /// The ends at a position in the template's order, whose rounds are `rounds`.
    #[inline(always)]
    fn tuple(&self, servers: &Tuples, position: u64, rounds: &mut Rounds) -> Tuple {
        self.tuple_of(servers, position, self.client(position, rounds), rounds)
    }

    /// The client and its port at a position in the template's order.
    #[inline(always)]
    fn client(&self, position: u64, rounds: &mut Rounds) -> (IpAddr, u16) {
        let (address, port) = self.tuples.tuple(position, rounds);
        (self.tuples.address(address), port)
    }

    /// The ends of a flow of this client at a position in the template's order.
    #[inline(always)]
    fn tuple_of(
        &self,
        servers: &Tuples,
        position: u64,
        (local, local_port): (IpAddr, u16),
        rounds: &mut Rounds,
    ) -> Tuple {
        let wrap = divided(position, self.tuples.len()).0;
        let server = servers.address(servers.server(position, wrap, local, rounds));
        Tuple { kind: self.kind, local, local_port, remote: server, remote_port: self.port }
    }

    /// The number of the next called flow, which no other flow of the template has. The top bit
    /// separates called flows from arrivals, because a template may have both.
    fn number_of_call(&self, seat: WorkerIndex) -> u32 {
        let (worker, workers) = seat.among();
        let own = if self.only_called { 0 } else { 1 << 31 };
        (self.called * workers + worker) as u32 | own
    }
}

/// A worker's share of the limit on open flows.
fn most_active(load: &Load, seat: WorkerIndex) -> u64 {
    let (worker, workers) = seat.among();
    let share = |most: u64| most.saturating_sub(worker).div_ceil(workers);
    load.limits.active.map_or(u64::MAX, share)
}

/// The flows of an open loop that belong to a worker, decided by their addresses and ports; these
/// differ if an earlier flow found them in use.
fn is_own(
    templates: &[ClientTemplate],
    servers: &[Tuples],
    rounds: &[Rounds],
    seat: WorkerIndex,
) -> impl IsOwn {
    move |template: usize, number| {
        seat.is_only() || {
            let (of, mut rounds) = (&templates[template], rounds[template]);
            seat.has(&of.tuple(&servers[of.servers], number, &mut rounds))
        }
    }
}

/// A worker of a part. A function of the flow's tuple selects first the part, then the worker, so
/// that parts may have different numbers of workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerIndex {
    pub part: Division,
    pub worker: (u32, u32),
}

impl WorkerIndex {
    /// Whether all flows begin here.
    #[inline]
    fn is_only(self) -> bool {
        self.worker.1 == 1 && self.part.is_whole()
    }

    #[inline]
    pub fn has(self, tuple: &Tuple) -> bool {
        (self.part.is_whole() || self.part.has_address(tuple.local)) && self.owns(tuple)
    }

    /// Whether the flow is this worker's within its part, whichever part begins it.
    #[inline]
    fn owns(self, tuple: &Tuple) -> bool {
        owner(tuple, self.worker.1) == self.worker.0
    }

    /// Its number among the workers of all parts, and their total, assuming that all parts have as
    /// many workers as this one: divides users and limits, because these have no tuple.
    #[inline]
    pub fn among(self) -> (u64, u64) {
        self.part.share(self.worker.0.into(), self.worker.1.into())
    }
}

/// The worker among `workers` that has a flow.
#[inline]
pub(crate) fn owner(tuple: &Tuple, workers: u32) -> u32 {
    owner::of_ends((tuple.local, tuple.local_port), (tuple.remote, tuple.remote_port), workers)
}

/// Adds the link's headers to packets.
struct Framer<'a, O> {
    link: &'a mut Link,
    out: &'a mut O,
    now: Nanos,
}

impl<O: FrameOutput> Output for Framer<'_, O> {
    #[inline(always)]
    fn due(&mut self, tick: u32) {
        self.out.due(tick);
    }

    #[inline(always)]
    fn packet(&mut self, _class: ClassId, flow: &Tuple, len: usize, cut: Cut) -> Option<&mut [u8]> {
        self.link.room(self.now, self.out, flow, len, cut)
    }

    #[inline(always)]
    fn segment4(
        &mut self,
        _class: ClassId,
        addresses: [u32; 2],
        ports: [u16; 2],
        len: usize,
    ) -> Option<&mut [u8]> {
        self.link.room4(self.now, self.out, addresses, ports, len)
    }

    #[inline(always)]
    fn segment6(
        &mut self,
        _class: ClassId,
        addresses: [Ipv6Octets; 2],
        ports: [u16; 2],
        len: usize,
    ) -> Option<&mut [u8]> {
        self.link.room6(self.now, self.out, addresses, ports, len)
    }
}

#[cfg(test)]
mod tests;
