//! What one port carries: clients, servers, or both. Frames and the time go in, frames come out.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use squall_apps::{
    Apps, Call, Listener, Peers, Program, ProgramError, ProgramId, State, Transport,
};
use squall_bpf::owner;
use squall_host::Answer;
use squall_tcp::{
    ClassId, ConnectError, FlowId, FlowInfo, FlowKind, Near, Output, Settings, Socket, Stack,
    Tunables, Tuple,
};
use squall_units::{Cut, Division, Nanos, be16};
use squall_wire::checksum::{fold, sum};

use crate::{
    Arrival, Exhausted, FlowStatistics, LinkStatistics, Load, LoadError, Network, NotBegun, Script,
    Statistics, Template, TemplateStatistics, Tuples,
    arrivals::{Arrivals, Due, Mine},
    link::{ETHERNET, Ignored, Link, Whose},
    pool::{Pool as PoolOf, divided},
    sharing::{Share, Sharing},
    steady::{Steady, Tallies, Tally},
    watched::{Begun, Recorder, Watched},
};

/// Room for frames.
pub trait FrameOutput {
    /// As [`squall_tcp::Output::due`].
    #[inline]
    fn due(&mut self, _tick: u32) {}

    /// Room for one frame of `len` octets (without FCS), all of which is then written; more than
    /// one segment's where `cut` says how it is to be cut. `None`: full, ask again later.
    fn frame(&mut self, len: usize, cut: Cut) -> Option<&mut [u8]>;

    /// The longest frame that there is room for at all.
    fn longest(&self) -> usize;
}

/// How a frame came by a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// What it was joined from.
    pub cut: Cut,
    /// Its TCP or UDP checksum may be that of the pseudo-header alone.
    pub partial: bool,
}

/// Who is on a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Clients,
    Servers,
    Both,
}

impl Role {
    /// Of what a side plays as clients and as servers, that of a role which it does not have is
    /// nothing.
    pub fn parts(self, clients: Part, servers: Part) -> (Part, Part) {
        match self {
            Self::Clients => (clients, Part::NOTHING),
            Self::Servers => (Part::NOTHING, servers),
            Self::Both => (clients, servers),
        }
    }
}

/// How a side is to work, beside its load and network.
#[derive(Clone, Copy, Debug)]
pub struct SideSettings {
    pub role: Role,
    /// Which of how many workers this is; what is received has to reach the [`Side::owner`].
    pub worker: (u32, u32),
    /// The flows of which part begin here: those of clients with its addresses. Whoever asks is
    /// served.
    pub part: Division,
    /// When the load begins.
    pub start: Nanos,
    /// Flows that there is room for at once, those in TIME-WAIT included.
    pub flows: u32,
    /// The longest packet that leaves as one to be cut later; 0: none does.
    pub gso_max_size: u16,
    /// Check the checksums of what is received.
    pub verify: bool,
    /// What it plays of the load as either role.
    pub clients: Part,
    pub servers: Part,
}

/// What a side plays of a load, as one of its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Flows of templates.
    pub templates: bool,
    /// Conversations of which scripts, a bit for each.
    pub scripts: u8,
}

impl Part {
    pub const ALL: Self = Self { templates: true, scripts: !0 };
    pub const NOTHING: Self = Self { templates: false, scripts: 0 };

    /// What belongs to either.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { templates: self.templates || other.templates, scripts: self.scripts | other.scripts }
    }

    /// Whether template `number` of `load` belongs to it.
    pub fn has(self, load: &Load, number: usize) -> bool {
        self.plays(load.script_of(number))
    }

    /// Whether the templates of a script belong to it; `None`: those of no script.
    pub(crate) fn plays(self, script: Option<usize>) -> bool {
        script.map_or(self.templates, |script| self.scripts >> script & 1 == 1)
    }
}

/// Flows that a side has room for unless told otherwise.
pub const FLOWS: u32 = 1 << 21;

impl SideSettings {
    fn seat(self) -> Seat {
        Seat { part: self.part, worker: self.worker }
    }
}

impl Default for SideSettings {
    fn default() -> Self {
        Self {
            role: Role::Both,
            worker: (0, 1),
            part: Division::WHOLE,
            start: Nanos::ZERO,
            flows: FLOWS,
            gso_max_size: 0,
            verify: true,
            clients: Part::ALL,
            servers: Part::ALL,
        }
    }
}

/// The flows of one side on one worker.
pub struct Side {
    stack: Stack<Watched>,
    link: Link,
    clients: Option<Clients>,
    /// Of these some begin no flow.
    disabled: Option<Arc<Ignored>>,
    /// By template: of its clients, of its servers.
    classes: Vec<[Option<(ClassId, ProgramId)>; 2]>,
    settings: SideSettings,
    drain: Nanos,
    /// Templates that are gone, and those of them whose flows are still to be aborted.
    gone: BTreeSet<usize>,
    leaving: Leaving,
    /// It was told to stop.
    stopped: bool,
    /// When the run ends that was asked for, if that is known.
    end: Option<Nanos>,
    stopping: Stopping,
    steady: Steady,
    /// When the last flow was due, if none is any more: one gap behind it, so that n flows a second
    /// are n.
    arrivals_until: Option<Nanos>,
    /// The latest instant that it was told, and by how much that is less than real time.
    now: Nanos,
    lag: Nanos,
}

/// An open flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlow {
    pub tcp: FlowInfo,
    /// Since it began; of servers nobody keeps when they were asked.
    pub lasted: Option<Nanos>,
}

/// Programs of templates that are gone, and the number of the first flow that may be one of theirs.
#[derive(Default)]
struct Leaving {
    programs: Vec<ProgramId>,
    from: u32,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    /// All flows have begun, and the run may go on: so they do, until then, and behind it while
    /// anything happens to them.
    Ending(Nanos, u64),
    /// No flow begins; those that are open may end by themselves until then.
    Draining(Nanos),
    /// Those from this number on are still to be aborted.
    Aborting(u32),
    Done,
}

/// What begins flows.
struct Clients {
    arrivals: Arrivals,
    templates: Vec<ClientTemplate>,
    pools: Vec<Pool>,
    servers: Vec<Tuples>,
    seat: Seat,
    /// Flows whose next hop is being asked for.
    parked: VecDeque<(Due, Place)>,
    /// The clients of each script, by conversation.
    scripts: Vec<Vec<Client>>,
    /// The first template of a script.
    first_scripted: usize,
    busy: Busy,
    /// Next hops that were known or given up when the parked were last looked at.
    looked_at: u64,
    limit: u64,
    /// Of templates, not of scripts.
    begun: u64,
}

/// Who speaks with whom in a flow, and where that is in its template's order.
#[derive(Clone, Copy)]
struct Place {
    tuple: Tuple,
    position: u64,
}

/// Conversations whose addresses and ports are still in use: of each the next is tried again at
/// times, so that they come in their order.
#[derive(Default)]
struct Busy {
    waiting: HashMap<Tuple, VecDeque<Due>>,
    again: VecDeque<(Nanos, Tuple)>,
}

/// A conversation's client.
#[derive(Clone, Copy)]
struct Client {
    tuple: Tuple,
    program: ProgramId,
}

struct ClientTemplate {
    pool: usize,
    /// Of the pool, those that are this template's.
    tuples: Tuples,
    servers: usize,
    name: String,
    port: u16,
    /// The script that it belongs to.
    script: Option<usize>,
    /// Its clients are played at all.
    begins: bool,
    kind: FlowKind,
    class: ClassId,
    program: ProgramId,
    /// The first place in the order that no flow of this worker has had: where one was passed over,
    /// as it was busy, later flows have later ones.
    next: u64,
    /// The stack has looked at places before this.
    approached: u64,
    /// Only other flows begin those of it.
    only_called: bool,
    /// Flows that others have begun, and ports that were tried for them.
    called: u64,
    ports_tried: u64,
    not_begun: NotBegun,
}

struct Pool {
    tuples: Tuples,
    /// A bit for each address at which a flow found no free port.
    busy: Vec<u64>,
    exhausted: Exhausted,
}

/// Flows that may wait for their next hop at once.
const PARKED: usize = 1 << 16;
/// Flows whose places in the stack's table are read at once: as many misses of a cache as a core
/// waits for at the same time.
const AHEAD: u64 = 8;
/// Tuples that are tried for one flow.
const TRIES: u64 = 64;
/// So long a conversation waits whose addresses and ports are in use, before it is tried again.
const BUSY: Nanos = Nanos(10_000_000);
/// Places in a template's order that are looked at for one that is a worker's, for each worker
/// that there is: as good as never are they all others'.
const SOUGHT: u64 = 64;
/// So long a user waits whose flow could not begin.
const BACK_OFF: Nanos = Nanos(1_000_000);
/// Flows that are aborted in a row: each has a reset that is to find room.
const ABORTED_AT_ONCE: u32 = 1024;
/// Records of flows that are looked through in a row for those of a template.
const LOOKED_AT_ONCE: u32 = 1 << 14;
/// How often it is looked whether anything happens to the last flows, at most.
const LOOK: Nanos = Nanos(1_000_000);
/// Servers whose next hops are asked for in advance.
const ASKED_AHEAD: u64 = 256;

impl Side {
    /// # Errors
    /// [`LoadError`]: a load, network, program or tunable that cannot be.
    pub fn new(load: &Load, network: &Network, settings: SideSettings) -> Result<Self, LoadError> {
        let (clients, servers) = load.check(network)?;
        let sharing = Sharing::of(load, &clients);
        if let Some(mistake) = sharing.mistake.as_ref().filter(|_| settings.role != Role::Clients) {
            return Err(mistake.clone());
        }
        let (of_clients, _) = settings.role.parts(settings.clients, settings.servers);
        let mut link = Link::new(network, settings.part);
        own_pools(load, settings, 0, [&clients, &servers])
            .for_each(|(pool, divided)| link.add_pool(pool, divided));

        let watched = Watched::new(Apps::new(load.seed, Recorder::default()));
        // Room for at least one flow; the key is the load's, so that runs are the same.
        let stack_settings = Settings {
            flows: settings.flows.clamp(1, 1 << 30),
            key: [load.seed ^ 0x5371_7561_6c6c, u64::from(settings.worker.0)],
            verify: settings.verify,
            gso_max_size: if link.is_plain() { settings.gso_max_size } else { 0 },
            ..Settings::default()
        };
        let stack = Stack::new(stack_settings, watched);
        let mut side = Self {
            stack,
            link,
            clients: None,
            disabled: None,
            classes: Vec::new(),
            settings,
            drain: load.drain,
            gone: BTreeSet::new(),
            leaving: Leaving::default(),
            stopped: false,
            end: end_of(load, settings.start),
            stopping: Stopping::No,
            steady: Steady::new(load, settings.start),
            arrivals_until: None,
            now: Nanos::ZERO,
            lag: Nanos::ZERO,
        };
        if settings.role != Role::Servers {
            let seat = settings.seat();
            side.clients = Some(Clients {
                arrivals: Arrivals::new(load, of_clients, seat, settings.start),
                templates: Vec::new(),
                pools: Vec::new(),
                servers: Vec::new(),
                seat,
                parked: VecDeque::new(),
                scripts: Vec::new(),
                first_scripted: load.own_templates(),
                busy: Busy::default(),
                looked_at: 0,
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

    /// Templates of `load` that are new, with their programs, and who serves whom. `clients` and
    /// `servers` are its pools, ready to be drawn from.
    fn take_templates(
        &mut self,
        load: &Load,
        sharing: &Sharing,
        clients: &[Tuples],
        servers: &[Tuples],
    ) -> Result<(), LoadError> {
        if let Some(known) = &mut self.clients {
            known.pools.extend(clients.iter().skip(known.pools.len()).cloned().map(Pool::new));
            known.servers.extend(servers.iter().skip(known.servers.len()).cloned());
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
            known.templates.push(ClientTemplate {
                pool: template.clients,
                tuples: pool.share(rank, of).unwrap_or_else(|| pool.clone()),
                servers: template.servers,
                name: template.name.clone(),
                port: template.port,
                script: load.script_of(number),
                begins: template.ends.has_clients(),
                kind: kind_of(&template.client),
                class,
                program,
                next: 0,
                approached: 0,
                only_called: template.arrival == Arrival::Called,
                called: 0,
                ports_tried: 0,
                not_begun: NotBegun::default(),
            });
            if template.ends.has_clients() && template.client.transport == Transport::Udp {
                let ends = (pool.clone(), servers[template.servers].clone());
                self.stack.app_mut().clients.push(ends);
            }
        }
        Ok(())
    }

    /// What the flows of one side of a template are like, and what they say.
    fn class(
        &mut self,
        number: usize,
        template: &Template,
        program: &Program,
        client: bool,
    ) -> Result<(ClassId, ProgramId), LoadError> {
        let wrong = |text: String| LoadError::Template { template: template.name.clone(), text };
        let tunables = if client { &template.client_tunables } else { &template.server_tunables };
        // The longest segment that fits a packet, whatever its options.
        let most = self.link.mtu().saturating_sub(40);
        let tunables = Tunables { mss: tunables.mss.min(most), ..tunables.clone() };
        let class = self.stack.add_class(tunables).map_err(|error| wrong(error.to_string()))?;
        let watched = self.stack.app_mut();
        let program =
            watched.add(number, client, program).map_err(|error| wrong(error.to_string()))?;
        if let Some(tls) = &template.tls {
            watched.secure(program, tls);
        }
        Ok((class, program))
    }

    /// Servers of a template are asked from now on, if they are this side's.
    fn listen(
        &mut self,
        load: &Load,
        number: usize,
        sharing: &Sharing,
        (class, program): (ClassId, ProgramId),
    ) {
        let template = &load.templates[number];
        let own = self.settings.servers.templates && number < load.own_templates();
        if !own || !template.ends.has_servers() || template.gone {
            return;
        }
        let addresses = |pool: &PoolOf| -> Vec<_> {
            pool.ranges.iter().map(|range| range.first()..=range.last()).collect()
        };
        let Share { rank, of } = sharing.shares[number];
        let peers = Peers { addresses: addresses(&load.clients[template.clients]), rank, of };
        let peers = sharing.shared[number].then_some(peers);
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

    /// Of the conversations of script `which` that are this worker's the programs, and who is who.
    /// The scripts `before` it have so many.
    fn take_script(
        &mut self,
        which: usize,
        script: &Script,
        before: usize,
    ) -> Result<(), LoadError> {
        let seat = self.settings.seat();
        let serves_it = self.settings.servers.plays(Some(which));
        let watched = self.stack.app_mut();
        let mut all = Vec::new();
        let mut serving = watched.serving.take().unwrap_or_default();
        for (number, conversation) in script.conversations.iter().enumerate() {
            let wrong = |error: ProgramError| LoadError::Conversation {
                number: number + 1,
                text: error.to_string(),
            };
            let [client, server] = &self.classes[conversation.template];
            let tuple = conversation.of_client();
            if let Some((_, kind)) = client {
                // Numbers are places: what another worker plays has one, too.
                let program = match seat.has(&tuple) {
                    true => watched
                        .add_conversation(*kind, before + number, &conversation.client)
                        .map_err(wrong)?,
                    false => *kind,
                };
                all.push(Client { tuple, program });
            }
            let serves = seat.owns(&tuple) && serves_it;
            if let Some((class, kind)) = server.as_ref().filter(|_| serves) {
                let program = watched
                    .add_conversation(*kind, before + number, &conversation.server)
                    .map_err(wrong)?;
                serving.add(conversation, *class, program);
            }
        }
        watched.serving = Some(serving);
        if let Some(clients) = &mut self.clients {
            clients.scripts.push(all);
        }
        Ok(())
    }

    /// Next hops that templates from number `first` on are going to need are asked for before their
    /// first flow is due.
    fn ask_ahead(&mut self, first: usize) {
        let Some(clients) = &self.clients else { return };
        let part = self.settings.clients;
        for template in clients.templates.iter().skip(first) {
            if !part.plays(template.script) || !template.begins {
                continue;
            }
            let servers = &clients.servers[template.servers];
            for i in 0..servers.addresses().min(ASKED_AHEAD) {
                self.link.resolve(self.now, servers.address(i));
            }
        }
    }

    /// Frames that are about to be received: what is kept of their flows is fetched for all of them
    /// at once. Where it is goes into `near`, in the frames' order, of as many as there is room
    /// for.
    #[inline]
    pub fn approach<'f>(&self, frames: impl Iterator<Item = &'f [u8]>, near: &mut [Near]) {
        match self.link.is_plain() {
            true => self
                .stack
                .approach(frames.map(|frame| frame.get(ETHERNET..).unwrap_or_default()), near),
            false => near.fill(Near::default()),
        }
    }

    /// From now on the clock of the side, which all calls are given as `now`, is so much less than
    /// real time. To be called once before what has come is received.
    pub fn keep_lag(&mut self, lag: Nanos) {
        self.lag = lag;
        self.stack.keep_lag(lag);
        if let Some(clients) = &mut self.clients {
            clients.arrivals.keep_lag(lag);
        }
    }

    /// The frame that is received next arrived at `at`, in real time: what it causes was due then.
    #[inline]
    pub fn arrived(&mut self, at: Nanos) {
        self.stack.arrived(at);
    }

    /// Real time.
    fn real(&self) -> Nanos {
        self.now + self.lag
    }

    /// Takes a frame that came by the port; `near`: what [`Side::approach`] said of it, or nothing.
    /// Whether it was for the side.
    #[inline]
    pub fn receive(&mut self, now: Nanos, frame: &[u8], came: Came, near: Near) -> bool {
        let refused = self.link.refused();
        let Some(packet) = self.link.receive(frame) else { return self.link.refused() == refused };
        // Somebody has verified its checksum to join it, or nobody has made one: where a port says
        // so, and the sum of the pseudo-header is there.
        if !came.cut.is_whole() || came.partial && has_partial_checksum(packet) {
            self.link.statistics.checksum_unverified += u64::from(came.partial);
            self.stack.receive_verified(now, packet);
        } else {
            self.stack.receive_near(now, packet, near);
        }
        true
    }

    /// Whether the frame is for the side: what [`Side::receive`] would say of it.
    pub fn claims(&self, frame: &[u8]) -> bool {
        self.link.claims(frame)
    }

    /// From now on these frames are not the side's, and these clients begin no flow; the next in the
    /// order of their template do in their place.
    pub fn ignore(&mut self, ignored: &Arc<Ignored>) {
        self.link.ignore(ignored);
        self.disabled = (!ignored.clients.is_empty()).then(|| ignored.clone());
    }

    /// Which worker has the flow that a received frame belongs to.
    #[inline]
    pub fn owner(&self, frame: &[u8]) -> Whose {
        self.link.owner(frame, self.settings.worker)
    }

    /// A frame that another worker was given, and all are to know of: who answers a question about
    /// a neighbour tells all. Nothing is answered.
    pub fn overhear(&mut self, frame: &[u8]) {
        self.link.overhear(frame);
    }

    /// So many frames were handed to other workers, or had to be dropped instead.
    pub fn relayed(&mut self, handed: u64, dropped: u64) {
        self.link.statistics.relayed += handed;
        self.link.statistics.relay_dropped += dropped;
    }

    /// Lets run what is due by `now`, but for new flows: [`Side::begin`].
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
        if !self.stack.app().apps.calls().is_idle() {
            self.answer_calls(now);
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

    /// Begins flows that are due, at most `most`; how many arrivals there were.
    #[inline]
    pub fn begin(&mut self, now: Nanos, most: usize) -> usize {
        let Some(clients) = &mut self.clients else { return 0 };
        self.stack.app_mut().each_ended(|template, due| clients.arrivals.ended(template, due));
        let mut begun = 0;
        while begun < most {
            let Some(clients) = &mut self.clients else { break };
            if let Some(due) = clients.busy.take(now) {
                begun += 1;
                self.arrive(now, due);
                continue;
            }
            let mine = mine(&clients.templates, &clients.servers, clients.seat);
            let Some(due) = clients.arrivals.take(now, mine) else { break };
            begun += 1;
            if clients.waits(now, due) {
                continue;
            }
            self.arrive(now, due);
        }
        if begun == 0
            && self.stopping == Stopping::No
            && !self.steady.is_told()
            && self.arrivals_over(now)
        {
            let at = self.clients.as_ref().and_then(|clients| {
                let (behind, end) = (clients.arrivals.behind_last()?, clients.arrivals.end());
                // What is still due when the time is over was asked for until then.
                Some(if now >= end { behind.max(end) } else { behind })
            });
            self.end_arrivals(at.unwrap_or(now));
            if self.settings.role == Role::Clients {
                self.stop_arrivals(now);
                let until = self.end.unwrap_or(now).max(now) + self.drain;
                self.stopping = Stopping::Ending(until, self.happened());
                self.go_on_stopping(now);
            }
        }
        begun
    }

    /// No flow is due from `at` on; only the first word counts.
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

    /// From now on the load is `load`, which [`Load::can_become`] has allowed; templates that are new
    /// wait for [`Side::begin_template`], so that their servers are there before.
    ///
    /// # Panics
    /// If there are new ones that no side could play ([`Side::new`]).
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
            clients.arrivals.join(load, self.settings.clients.templates);
        }
        self.leave(now, load);
        if joined {
            // Flows begin again, where all had begun.
            self.stopping = Stopping::No;
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

    /// Templates are new.
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

    /// Templates are gone: nobody is served, and what is open is aborted.
    fn leave(&mut self, now: Nanos, load: &Load) {
        for number in (0..load.templates.len()).filter(|number| load.templates[*number].gone) {
            if !self.gone.insert(number) {
                continue;
            }
            let sides = self.classes[number].into_iter().flatten().map(|(_, program)| program);
            self.leaving.programs.extend(sides);
            self.leaving.from = 0;
            let apps = &mut self.stack.app_mut().apps;
            self.classes[number][1].iter().for_each(|(_, program)| apps.hang_up(*program));
            if let Some(clients) = &mut self.clients {
                clients.give_up(now, number);
            }
        }
        self.go_on_leaving(now);
    }

    /// Aborts flows of templates that are gone.
    fn go_on_leaving(&mut self, now: Nanos) {
        if self.leaving.programs.is_empty() || self.stack.has_output() {
            return;
        }
        let (mut looked_at, mut aborted) = (0, 0);
        while self.leaving.from < self.stack.records() && aborted < ABORTED_AT_ONCE {
            let id = FlowId(self.leaving.from);
            let programs = &self.leaving.programs;
            let leave = |watched: &mut Watched, socket: &mut Socket<'_, State>| {
                let is_gone = programs.contains(&watched.apps.program(socket.state()));
                if is_gone {
                    watched.stopping = true;
                    socket.abort();
                }
                is_gone
            };
            aborted += u32::from(self.stack.with(now, id, leave) == Some(true));
            (self.leaving.from, looked_at) = (self.leaving.from + 1, looked_at + 1);
            if looked_at == LOOKED_AT_ONCE {
                break;
            }
        }
        self.stack.app_mut().stopping = false;
        if self.leaving.from >= self.stack.records() {
            self.leaving.programs.clear();
        }
    }

    /// No more flows of a template (`None`: of all) begin until [`Side::resume`]; those that are
    /// open go on.
    pub fn pause(&mut self, now: Nanos, template: Option<usize>) {
        if let Some(clients) = &mut self.clients {
            clients.arrivals.pause(now, template);
        }
    }

    /// Flows begin again; what would have been due meanwhile is due later.
    pub fn resume(&mut self, now: Nanos, template: Option<usize>) {
        if let Some(clients) = &mut self.clients {
            clients.arrivals.resume(now, template);
        }
    }

    /// A template that waited begins, its own start behind `at`.
    pub fn begin_template(&mut self, at: Nanos, template: usize) {
        if let Some(clients) = &mut self.clients {
            clients.arrivals.begin(at, template);
        }
    }

    /// Whether all flows of a template have ended, and none begins any more; `None`: no clients of
    /// it are here.
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
            return clients.refuse(now, due.template, NotBegun::LIMIT);
        }
        let Some(place) = clients.place(due) else {
            return clients.refuse(now, due.template, NotBegun::PORTS);
        };
        match self.link.resolve(now, place.tuple.remote) {
            Answer::Mac(_) => self.connect(now, due, place),
            Answer::Wait if clients.parked.len() < PARKED => clients.parked.push_back((due, place)),
            Answer::Wait | Answer::Silent => {
                clients.refuse(now, due.template, NotBegun::UNRESOLVED)
            }
        }
    }

    #[inline]
    fn connect(&mut self, now: Nanos, due: Due, mut place: Place) {
        let Some(clients) = &mut self.clients else { return };
        if self.stack.is_far() {
            clients.approach(&self.stack, due.template, place.position);
        }
        let program = clients.program(due);
        let real = now + self.lag;
        let state = self.stack.app().apps.client(program, due.number as u32, real);
        let mut tries = 1;
        loop {
            let Some(clients) = &mut self.clients else { return };
            clients.templates[due.template].passed(place);
            let of = (clients.templates[due.template].class, program);
            let begun = Begun::new(due.at, real);
            self.stack.due(due.at.min(now));
            let outcome = self.attempt(now, of, place.tuple, state, begun, None);
            let Some(clients) = &mut self.clients else { return };
            match outcome {
                Ok(()) => {
                    clients.begun += u64::from(!clients.is_scripted(due.template));
                    return;
                }
                Err(why) if why == NotBegun::FULL => {
                    return clients.refuse(now, due.template, why);
                }
                Err(_) if tries < TRIES && tries < clients.tuples_of(due.template) => {
                    // The next tuple in the order, which then is not that of the flow behind.
                    tries += 1;
                    match clients.place(due) {
                        Some(next) => place = next,
                        None => tries = TRIES,
                    }
                }
                Err(_) if clients.is_scripted(due.template) => {
                    return clients.busy.put_back(now, place.tuple, due);
                }
                Err(why) => {
                    if why == NotBegun::PORTS {
                        clients.exhausted(due.template, &place.tuple);
                    }
                    return clients.refuse(now, due.template, why);
                }
            }
        }
    }

    /// Begins a flow, of whoever has asked for it. `Err`: why not; with other ends it might, unless
    /// there is no room.
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
        let watched = self.stack.app_mut();
        // A flow over UDP has begun when it is connected.
        watched.beginning = Some(begun);
        if let Some(call) = call {
            watched.apps.calls_mut().begin(call);
        }
        let connected = self.stack.connect(now, class, tuple, state);
        let watched = self.stack.app_mut();
        match connected {
            Ok(id) => {
                watched.apps.calls_mut().started(id);
                watched.began(id, program, begun);
                Ok(())
            }
            Err(error) => {
                watched.beginning = None;
                watched.apps.calls_mut().give_up();
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

    /// Begins the flows that programs of others ask for, and wakes those whose wish is over.
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

    /// All flows are being aborted.
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

    /// Whether a flow's template is gone, so that it is to be aborted.
    fn is_leaving(&mut self, now: Nanos, flow: FlowId) -> bool {
        let leaving = &self.leaving.programs;
        let of_it = |watched: &mut Watched, socket: &mut Socket<'_, State>| {
            leaving.contains(&watched.apps.program(socket.state()))
        };
        !leaving.is_empty() && self.stack.with(now, flow, of_it) == Some(true)
    }

    fn answer(&mut self, now: Nanos, call: Call) {
        let Some(clients) = &mut self.clients else { return };
        // It may have been taken out of the load.
        let Some(number) = clients.number_of(&call, &self.gone) else {
            return self.stack.app_mut().apps.calls_mut().refuse(&call);
        };
        let full = self.stack.active() as u64 >= clients.limit;
        let mut why = if full { NotBegun::LIMIT } else { NotBegun::PORTS };
        let mut tried = None;
        for _ in 0..if full { 0 } else { TRIES } {
            let Some(clients) = &mut self.clients else { return };
            let Some(tuple) = clients.called(number, &call.tuple) else { break };
            match self.link.resolve(now, tuple.remote) {
                Answer::Mac(_) => {}
                Answer::Wait => return self.stack.app_mut().apps.calls_mut().put_off(call),
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

    /// Flows whose next hop has answered, or was given up.
    fn unpark(&mut self, now: Nanos) {
        let known = self.link.statistics.resolved + self.link.statistics.resolution_failed;
        let Some(clients) = &mut self.clients else { return };
        if std::mem::replace(&mut clients.looked_at, known) == known {
            return;
        }
        self.stack.app_mut().apps.calls_mut().retry();
        for _ in 0..clients.parked.len() {
            let Some(clients) = &mut self.clients else { return };
            let Some((due, place)) = clients.parked.pop_front() else { return };
            match self.link.resolve(now, place.tuple.remote) {
                Answer::Mac(_) => self.connect(now, due, place),
                Answer::Wait => clients.parked.push_back((due, place)),
                Answer::Silent => clients.refuse(now, due.template, NotBegun::UNRESOLVED),
            }
        }
    }

    fn steer(&mut self, now: Nanos) {
        let Some(clients) = &mut self.clients else { return };
        let (stack, classes) = (&self.stack, &self.classes);
        let (first, begun) = (clients.first_scripted, clients.begun);
        clients.arrivals.steer(now, || {
            // What scripts say has its own times, and is no part of what is aimed at.
            let own = classes[..first].iter();
            let of = own.filter_map(|[client, _]| Some(stack.counters(client.as_ref()?.0)));
            (of.map(|counters| counters.delivered + counters.acked).sum(), begun)
        });
    }

    /// When something is to be done next if nothing comes; `None`: never.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        let leaves = !self.leaving.programs.is_empty();
        if leaves
            || self.stack.app().has_ended()
            || !self.stack.app().apps.calls().is_idle()
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
        [self.stack.next_due(), self.link.next_due(), arrivals, end].into_iter().flatten().min()
    }

    /// Whether something waits to be sent.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.stack.has_output() || self.link.has_answers()
    }

    /// A peer waits for an acknowledgement of much.
    #[inline]
    pub fn is_pressed(&self) -> bool {
        self.stack.is_pressed()
    }

    /// Sends what waits, until there is none or no room for it.
    #[inline]
    pub fn transmit(&mut self, now: Nanos, out: &mut impl FrameOutput) {
        if self.link.has_answers() {
            self.link.transmit(out);
        }
        self.stack.transmit(now, &mut Framer { link: &mut self.link, out, now });
    }

    /// No more flows begin; those that are open have the load's drain time to end, then they are
    /// aborted.
    pub fn stop(&mut self, now: Nanos) {
        if !matches!(self.stopping, Stopping::No | Stopping::Ending(..)) {
            return;
        }
        self.stopped = true;
        self.stopping = Stopping::Draining(now + self.drain);
        // What was due in time still begins, however late this is heard.
        self.begin(now, usize::MAX);
        let real = now + self.lag;
        self.end_arrivals(real);
        self.stop_arrivals(real);
        self.go_on_stopping(now);
    }

    fn stop_arrivals(&mut self, now: Nanos) {
        if let Some(clients) = &mut self.clients {
            clients.stop_arrivals(now);
            while let Some((due, _)) = clients.parked.pop_front() {
                clients.refuse(now, due.template, NotBegun::UNRESOLVED);
            }
            for due in std::mem::take(&mut clients.busy).waiting.into_values().flatten() {
                clients.refuse(now, due.template, NotBegun::PORTS);
            }
        }
    }

    /// Changes when anything happens to an open flow.
    fn happened(&self) -> u64 {
        let classes = self.classes.iter().flatten().flatten();
        classes
            .map(|(class, _)| self.stack.counters(*class))
            .map(|c| c.segments_in + c.segments_out)
            .sum()
    }

    /// Open flows are aborted at once, drain time or not.
    pub fn abort(&mut self, now: Nanos) {
        self.stop(now);
        if let Stopping::Draining(_) = self.stopping {
            self.stopping = Stopping::Draining(now);
        }
        self.go_on_stopping(now);
    }

    /// All that was to be done is done: no flow is open, and none will begin.
    pub fn is_over(&self) -> bool {
        self.stopping == Stopping::Done
    }

    /// Whether it was told to stop, or has nothing more to begin.
    pub fn is_stopping(&self) -> bool {
        self.stopping != Stopping::No
    }

    fn go_on_stopping(&mut self, now: Nanos) {
        match self.stopping {
            Stopping::Ending(..) | Stopping::Draining(_) if self.stack.active() == 0 => {
                self.stopping = Stopping::Done
            }
            Stopping::Ending(until, before) if now >= until => {
                let happened = self.happened();
                // A program that waits for its time, or a segment that is sent again.
                let goes_on = happened != before || self.stack.next_due().is_some();
                let then = now + self.drain.max(LOOK);
                self.stopping = if goes_on {
                    Stopping::Ending(then, happened)
                } else {
                    Stopping::Draining(now)
                };
            }
            // Of these nothing is missing.
            Stopping::Draining(until)
                if now >= until || self.stack.active() == self.stack.app().apps.resting() =>
            {
                self.stack.app_mut().stopping = true;
                self.stopping = Stopping::Aborting(0);
                self.drop_calls();
            }
            Stopping::Aborting(_) if self.stack.active() == 0 && !self.has_output() => {
                self.stopping = Stopping::Done
            }
            Stopping::Aborting(from) if !self.stack.has_output() => {
                // Until so many were found: most numbers may be nobody's.
                let (mut at, mut aborted) = (from, 0);
                while aborted < ABORTED_AT_ONCE && at < self.settings.flows {
                    aborted += u32::from(
                        self.stack.with(now, FlowId(at), |_, socket| socket.abort()).is_some(),
                    );
                    at += 1;
                }
                self.stopping = Stopping::Aborting(if at == self.settings.flows { 0 } else { at });
            }
            _ => {}
        }
    }

    /// Whether programs go on here by themselves, whatever their peers do.
    pub fn acts(&self) -> bool {
        self.stack.app().apps.delaying() > 0 || self.has_output()
    }

    /// Open flows.
    pub fn active(&self) -> usize {
        self.stack.active()
    }

    /// The open flows of TCP among `most` records from number `from` on; those in TIME-WAIT are
    /// none.
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

    /// Records of flows so far: of flows that are open now or were.
    pub fn records(&self) -> u32 {
        self.stack.records()
    }

    /// Flows whose addresses and ports are not free again yet.
    pub fn time_wait(&self) -> usize {
        self.stack.time_wait()
    }

    /// Octets of memory that flows use.
    pub fn memory(&self) -> usize {
        self.stack.memory() + self.stack.app().memory()
    }

    /// What was counted so far, by template.
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

    /// No more flows begin; those that were due before `until` and have not begun are counted as
    /// late.
    pub fn give_up_before(&mut self, until: Nanos) {
        if let Some(clients) = &mut self.clients {
            clients.stop_arrivals(until);
        }
    }

    /// What became of the flows so far; `full`: with histograms.
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
                // Of sessions TCP knows the cipher text.
                all.sent_octets = all.tls.as_ref().map_or(plain, |tls| tls.sent_octets);
                all.tcp = tcp.clone();
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
            let mine = mine(&clients.templates, &clients.servers, clients.seat);
            let overdue = clients.arrivals.overdue(self.now, mine);
            for (i, (template, theirs)) in templates.iter_mut().zip(&clients.templates).enumerate()
            {
                let mut not_begun = theirs.not_begun;
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

/// Whether nobody has made the checksum yet: in its place stands the sum of the pseudo-header.
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

/// Pools that are at home on a side: of templates from number `first` on, and of none before; and
/// whether they are of clients, who are divided among parts. `ready`: those of clients, of servers.
fn own_pools(
    load: &Load,
    settings: SideSettings,
    first: usize,
    ready: [&[Tuples]; 2],
) -> impl Iterator<Item = (Tuples, bool)> {
    let (of_clients, of_servers) = settings.role.parts(settings.clients, settings.servers);
    let own = |part: Part, pool: fn(&Template) -> Option<usize>, ready: &[Tuples]| -> Vec<_> {
        let of = |templates: Range<usize>| -> BTreeSet<usize> {
            let ours = templates.filter(|number| part.has(load, *number));
            ours.filter_map(|number| pool(&load.templates[number])).collect()
        };
        let new = &of(first..load.templates.len()) - &of(0..first);
        new.into_iter().map(|number| ready[number].clone()).collect()
    };
    let [clients, servers] = ready;
    let clients = own(of_clients, |t| t.ends.has_clients().then_some(t.clients), clients);
    let servers = own(of_servers, |t| t.ends.has_servers().then_some(t.servers), servers);
    let both = clients.into_iter().map(|pool| (pool, true));
    both.chain(servers.into_iter().map(|pool| (pool, false)))
}

fn end_of(load: &Load, start: Nanos) -> Option<Nanos> {
    load.limits.duration.map(|duration| Nanos(start.0.saturating_add(duration.0).min(u64::MAX / 2)))
}

fn kind_of(program: &Program) -> FlowKind {
    match program.transport {
        Transport::Tcp => FlowKind::Tcp,
        Transport::Udp => FlowKind::Udp,
    }
}

impl Busy {
    fn put(&mut self, now: Nanos, tuple: Tuple, due: Due) {
        self.waiting.entry(tuple).or_default().push_back(due);
        self.again.push_back((now + BUSY, tuple));
    }

    /// In front of those who wait behind it.
    fn put_back(&mut self, now: Nanos, tuple: Tuple, due: Due) {
        self.waiting.entry(tuple).or_default().push_front(due);
        self.again.push_back((now + BUSY, tuple));
    }

    /// The next that is to be tried again.
    fn take(&mut self, now: Nanos) -> Option<Due> {
        self.again.front().filter(|(at, _)| *at <= now)?;
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
    fn new(tuples: Tuples) -> Self {
        let busy = vec![0; tuples.addresses().div_ceil(64) as usize];
        Self { tuples, busy, exhausted: Exhausted::default() }
    }
}

impl Clients {
    /// What waits of a template does not begin.
    fn give_up(&mut self, now: Nanos, template: usize) {
        let (theirs, others) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(due, _)| due.template == template);
        self.parked = others;
        let theirs: VecDeque<(Due, Place)> = theirs;
        theirs.iter().for_each(|_| self.refuse(now, template, NotBegun::UNRESOLVED));
    }

    /// Who speaks with whom in a flow that is due: of a template the first place in its order that
    /// is this worker's, none has had, and is not before the flow's own. `None`: there is none.
    #[inline]
    fn place(&self, due: Due) -> Option<Place> {
        if let Some(part) = self.part(due) {
            return Some(Place { tuple: part.tuple, position: 0 });
        }
        let template = &self.templates[due.template];
        let servers = &self.servers[template.servers];
        let first = due.number.max(template.next);
        if self.seat.is_only() {
            return Some(Place { tuple: template.tuple(servers, first), position: first });
        }
        let places = (first..first.saturating_add(SOUGHT * self.seat.among().1))
            .map(|position| Place { tuple: template.tuple(servers, position), position });
        places.into_iter().find(|place| self.seat.has(&place.tuple))
    }

    /// Has the stack look ahead to the flows behind that at `position`, several at a time: the
    /// table of a million flows is in no near cache, and its order is that of a hash.
    #[inline]
    fn approach(&mut self, stack: &Stack<Watched>, template: usize, position: u64) {
        let at = &mut self.templates[template];
        if position < at.approached || !self.seat.is_only() || template >= self.first_scripted {
            return;
        }
        at.approached = position + AHEAD;
        let (at, servers) =
            (&self.templates[template], &self.servers[self.templates[template].servers]);
        stack.approach_new((position + 1..=position + AHEAD).map(|next| at.tuple(servers, next)));
    }

    /// The template of which a program asks for a flow.
    fn number_of(&self, call: &Call, gone: &BTreeSet<usize>) -> Option<usize> {
        let own = self.templates.iter().take(self.first_scripted).enumerate();
        own.filter(|(number, of)| of.begins && !gone.contains(number))
            .find(|(_, of)| of.name == *call.template)
            .map(|(number, _)| number)
    }

    /// The ends of the next flow of a template that a flow with these begins: the same client and
    /// server, if they are in the template's pools. `None`: none of its ports is this worker's.
    fn called(&mut self, number: usize, caller: &Tuple) -> Option<Tuple> {
        let of = &mut self.templates[number];
        let servers = &self.servers[of.servers];
        let tries = SOUGHT * self.seat.among().1;
        for _ in 0..tries {
            let nth = of.ports_tried;
            of.ports_tried += 1;
            let mut tuple = of.tuple(servers, nth);
            if of.tuples.index_of(caller.local).is_some() {
                (tuple.local, tuple.local_port) = (caller.local, of.tuples.port(nth));
            }
            if servers.index_of(caller.remote).is_some() {
                tuple.remote = caller.remote;
            }
            if self.seat.is_only() || self.seat.has(&tuple) {
                return Some(tuple);
            }
        }
        None
    }

    fn stop_arrivals(&mut self, now: Nanos) {
        self.arrivals.stop(now, mine(&self.templates, &self.servers, self.seat));
    }

    /// What its client says.
    #[inline]
    fn program(&self, due: Due) -> ProgramId {
        self.part(due).map_or(self.templates[due.template].program, |part| part.program)
    }

    /// The conversation of a script that is due.
    #[inline]
    fn part(&self, due: Due) -> Option<&Client> {
        let all = &self.scripts[self.templates[due.template].script?];
        Some(&all[(due.number % all.len() as u64) as usize])
    }

    /// Whether the template is a script's.
    #[inline]
    fn is_scripted(&self, template: usize) -> bool {
        template >= self.first_scripted
    }

    fn next_due(&self) -> Option<Nanos> {
        let again = self.busy.again.front().map(|(at, _)| *at);
        let mine = mine(&self.templates, &self.servers, self.seat);
        self.arrivals.next_due(mine).into_iter().chain(again).min()
    }

    /// Whether an earlier conversation of the same addresses and ports waits for them: then this
    /// one does, too.
    #[inline]
    fn waits(&mut self, now: Nanos, due: Due) -> bool {
        if self.busy.waiting.is_empty() {
            return false;
        }
        let Some(Place { tuple, .. }) = self.place(due) else { return false };
        let waits = self.busy.waiting.contains_key(&tuple);
        if waits {
            self.busy.put(now, tuple, due);
        }
        waits
    }

    /// Tuples that a template's flows can have; of a script each has one.
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

    #[cold]
    fn refuse(&mut self, now: Nanos, template: usize, why: usize) {
        self.templates[template].not_begun.add(why, 1);
        self.arrivals.ended(template, now + BACK_OFF);
    }
}

impl ClientTemplate {
    /// Who speaks with whom at a place of its order.
    #[inline]
    fn tuple(&self, servers: &Tuples, position: u64) -> Tuple {
        let (address, port) = self.tuples.tuple(position);
        let client = self.tuples.address(address);
        let wrap = divided(position, self.tuples.len()).0;
        let server = servers.address(servers.server(position, wrap, client));
        Tuple {
            kind: self.kind,
            local: client,
            local_port: port,
            remote: server,
            remote_port: self.port,
        }
    }

    /// The number of the next flow that another begins, which no other flow of the template has.
    fn number_of_call(&self, seat: Seat) -> u32 {
        let (worker, workers) = seat.among();
        let own = if self.only_called { 0 } else { 1 << 31 };
        (self.called * workers + worker) as u32 | own
    }

    /// A flow has had the place, or found it busy.
    #[inline]
    fn passed(&mut self, place: Place) {
        self.next = self.next.max(place.position + 1);
    }
}

/// Flows that may be open at once on a worker.
fn most_active(load: &Load, seat: Seat) -> u64 {
    let (worker, workers) = seat.among();
    let share = |most: u64| most.saturating_sub(worker).div_ceil(workers);
    load.limits.active.map_or(u64::MAX, share)
}

/// Which flows of an open loop are a worker's: those whose addresses and ports are, unless one
/// before them has found these busy.
fn mine(templates: &[ClientTemplate], servers: &[Tuples], seat: Seat) -> impl Mine {
    move |template: usize, number| {
        let template = &templates[template];
        seat.is_only() || seat.has(&template.tuple(&servers[template.servers], number))
    }
}

/// A worker of a part: which flows begin there. What is known of a flow's tuple (part, then
/// worker) decides, so that parts may differ in their workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub part: Division,
    pub worker: (u32, u32),
}

impl Seat {
    /// Whether all flows begin here.
    #[inline]
    fn is_only(self) -> bool {
        self.worker.1 == 1 && self.part.is_whole()
    }

    #[inline]
    pub fn has(self, tuple: &Tuple) -> bool {
        (self.part.is_whole() || self.part.has_address(tuple.local)) && self.owns(tuple)
    }

    /// Whether it has the flow on this part, whoever begins it.
    #[inline]
    fn owns(self, tuple: &Tuple) -> bool {
        owner(tuple, self.worker.1) == self.worker.0
    }

    /// Its number among all workers of all parts, and how many these are if they have as many as
    /// this one: what has no tuple is divided by numbers.
    #[inline]
    pub fn among(self) -> (u64, u64) {
        self.part.share(self.worker.0.into(), self.worker.1.into())
    }
}

/// The worker that has a flow, of so many.
#[inline]
pub(crate) fn owner(tuple: &Tuple, workers: u32) -> u32 {
    owner::of_ends((tuple.local, tuple.local_port), (tuple.remote, tuple.remote_port), workers)
}

/// Puts frames around packets.
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
}

#[cfg(test)]
mod tests;
