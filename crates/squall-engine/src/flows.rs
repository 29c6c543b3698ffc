//! Flows: a worker runs one or both sides of a load on its ports.
//!
//! A turn takes all received frames, runs the timers, begins due flows, and writes frames directly
//! into the port's slots. Receiving comes first, because open flows must end before more begin: an
//! excessive load then delays arrivals (counted as late), but does not reduce throughput.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Instant,
};

use squall_flows::{
    FlowHint, FlowKind, FrameOutput, FrameOwner, Load, LoadError, OpenFlow, ReceiveOffloads, Role,
    Side, SideSettings, Statistics, Wrap,
};
use squall_plan::{After, FlowSide, Part, Plan, PlanFlows, SourceId};
use squall_port::{BATCH, Hosts, PortFacts, RxBatch, Timestamps};
use squall_stats::Fingerprint;
use squall_units::{Cut, Division, Nanos, Picos};

use crate::{
    Clock, Counters, PortTx, Running, Snapshot,
    clock::{Stalls, Watch},
    command::{Action, Command, Content},
    hosts::HostTables,
    output::{FrameMaker, Output, Room, Wire},
    relay::Relay,
    sink::{Frames, Shown, Sink, Wanted},
    source::{LATER, Outlets, Rest, SLIP, Source, Turn, pass},
    transmit::OVERTIME,
};

/// Results of the flows of one port on one worker.
#[derive(Clone, Debug)]
pub struct FlowStats {
    pub port: usize,
    pub statistics: Statistics,
}

/// The first port whose side is invalid, and why.
pub(crate) fn check(flows: &PlanFlows) -> Result<(), (usize, LoadError)> {
    for side in &flows.sides {
        let settings = SideSettings {
            role: side.role,
            origin: Some(Instant::now()),
            flows: 1,
            ..SideSettings::default()
        };
        Side::new(&flows.load, &side.network, settings).map_err(|error| (side.port, error))?;
    }
    Ok(())
}

/// The packets that a side of the plan receives under this load.
pub(crate) fn hosts(plan: &Plan, side: &FlowSide, load: &Load) -> Hosts {
    let (clients, servers) = side.role.parts(side.clients, side.servers);
    let addresses_of = |(number, template): (usize, &squall_flows::Template)| {
        let (begins, serves) = (template.ends.has_clients(), template.ends.has_servers());
        let clients = clients.has(load, number) && begins;
        let clients = clients.then(|| &load.clients[template.clients]);
        let servers = servers.has(load, number) && serves;
        let servers = servers.then(|| &load.servers[template.servers]);
        clients
            .into_iter()
            .chain(servers)
            .flat_map(|pool| &pool.ranges)
            .map(|range| range.first()..=range.last())
    };
    // Tunneled packets are addressed to the tunnel's local end.
    let wraps = || side.network.all_wraps().flatten();
    let ends = wraps().filter_map(|wrap| match *wrap {
        Wrap::Gre { local, .. } | Wrap::Vxlan { local, .. } | Wrap::GtpU { local, .. } => {
            Some(local)
        }
        Wrap::Vlan { .. } | Wrap::Mpls { .. } | Wrap::Pppoe => None,
    });
    // Each end once, because all clients of a gateway may have the same.
    let local = ends.collect::<BTreeSet<_>>().into_iter().map(|local| local..=local);
    Hosts {
        shared: !plan.only_flows() || plan.has_hosts(side.port),
        workers: plan.players(side.port).count() as u32,
        addresses: load.templates.iter().enumerate().flat_map(addresses_of).chain(local).collect(),
        labels: wraps().any(|wrap| matches!(wrap, Wrap::Mpls { .. })),
        datagrams: !load.scripts.is_empty()
            || load.templates.iter().any(|template| template.kind() == FlowKind::Udp),
    }
}

/// A worker's share of the flows.
pub(crate) struct Player {
    ports: Vec<PlayerPort>,
    tables: HostTables,
    /// Whether to hash all sent frames.
    fingerprint: bool,
    /// Sides that used no hosts at the end of the last turn.
    without_hosts: usize,
    clock: Clock,
    /// The current time, in virtual time.
    virtual_now: Nanos,
    /// Whether any worker of the run begins flows.
    has_clients: bool,
    stopped: bool,
    /// The end of the run, as of the last turn.
    end: Picos,
    pace: Pace,
    /// How long servers may act after all clients have ended; the resulting deadline; and whether
    /// servers are still acting.
    drain: Nanos,
    servers_until: Option<Nanos>,
    servers_act: bool,
    /// Templates that others wait for and that have not ended yet.
    awaited: Vec<usize>,
}

/// How often the worker's recent wake-ups found something.
#[derive(Default)]
struct Pace {
    since: Nanos,
    wakes: u32,
    /// Streams that had begun until then, and in the last period the time from one to the next.
    streams: u64,
    gap: Nanos,
    often: bool,
    /// Whether any frame moved after the last sleep.
    moved: bool,
}

/// Open flows and lanes of a worker.
#[derive(Clone, Copy, Default)]
struct OpenCounts {
    flows: usize,
    lanes: usize,
}

impl Pace {
    /// How long a worker should wait for several frames before it wakes up, if it should: interrupt
    /// moderation, because a wake-up costs as much as several frames. With few flows and lanes, each
    /// would only wait for the other's answer; with little traffic, no second frame arrives in time.
    /// `streams`: the number of those that have begun, which is a sum over all programs.
    fn gathers(
        &mut self,
        now: Nanos,
        open: impl FnOnce() -> OpenCounts,
        streams: impl FnOnce() -> u64,
    ) -> Option<Nanos> {
        if !std::mem::take(&mut self.moved) {
            return None;
        }
        self.wakes += 1;
        let passed = now.saturating_sub(self.since);
        if passed >= PACE {
            let often = passed < PACE + PACE && self.wakes >= OFTEN;
            let streams = streams();
            let gap = Nanos(passed.0 / streams.saturating_sub(self.streams).max(1));
            *self = Self { since: now, often, streams, gap, ..Self::default() };
        }
        if !self.often {
            return None;
        }
        let OpenCounts { flows, lanes } = open();
        if lanes >= MANY {
            // Each lane waits for the peer, which answers them one after the other: this long after
            // its stream, a lane begins its next. Requests that leave a little later than they
            // could are there before the peer is done with the others, and more of them share a
            // packet.
            let round = Nanos(self.gap.0.saturating_mul(lanes as u64));
            let time = Nanos(round.0 / OF_ROUND).clamp(GATHER, GATHER_LANES);
            // With fewer answers in this time, the wait would save little CPU time, and would be in
            // the measured times of all of them: lanes that think count as lanes, too.
            if time >= Nanos(self.gap.0.saturating_mul(ANSWERS)) {
                // It counts for the wake-ups that it replaces, also if turns take as long as it.
                self.wakes += 2 * (time.0 / GATHER.0) as u32;
                return Some(time);
            }
        }
        (flows >= MANY).then_some(GATHER)
    }
}

/// Wake-ups are counted over this time. `OFTEN` of them are one per 100 us, above which gathering
/// costs less than waking for each frame (docs/adr/0031).
const PACE: Nanos = Nanos(2_000_000);
const OFTEN: u32 = 20;
/// Number of open flows above which several have frames within one wait (docs/adr/0031). With
/// fewer, each would only wait for the other's answer.
const MANY: usize = 32;
/// How long frames gather (docs/adr/0031).
const GATHER: Nanos = Nanos(50_000);
/// The longest time for lanes, and the part of the time between two streams of a lane. A sleep costs
/// as much CPU time as three or four requests of HTTP/3.
const GATHER_LANES: Nanos = Nanos(500_000);
const OF_ROUND: u64 = 3;
/// Number of answers within a wait of lanes from which on it is worth their delay.
const ANSWERS: u64 = 10;

struct PlayerPort {
    port: usize,
    side: Side,
    /// The lag of the port's traffic clock in this turn, and the traffic time.
    lag: Nanos,
    horizon: Nanos,
    /// Whether frames have receive timestamps. Without them, a frame may have arrived at any time
    /// after the previous poll of the port.
    stamped: bool,
    polled: [Nanos; 2],
    clients: bool,
    /// Present if other workers share the port's flows: this worker may then receive frames that
    /// belong to another.
    relay: Option<Relay>,
    out: Output,
    /// The current time, in virtual time.
    virtual_now: Option<Nanos>,
    /// Frames that an emulated delay ([`squall_port::fault`]) holds back.
    held: VecDeque<(Nanos, ReceiveOffloads, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// Lookup results for the current batch. Kept between batches to reuse the allocation.
    near: Vec<FlowHint>,
    /// Whether a frame has arrived after the last turn.
    came: bool,
}

/// Maximum number of batches taken from other workers per turn.
const HANDED_AT_ONCE: usize = 16;
/// Maximum number of flows begun per turn: their state is still in the cache when the answers
/// arrive.
const BEGIN: usize = 32;
impl Player {
    pub fn new(clock: Clock, flows: &PlanFlows, afters: &[After], tables: HostTables) -> Self {
        Self {
            ports: Vec::new(),
            tables,
            fingerprint: false,
            without_hosts: 0,
            clock,
            virtual_now: Nanos::ZERO,
            has_clients: flows.sides.iter().any(|side| side.role != Role::Servers),
            stopped: false,
            end: Picos(u64::MAX),
            pace: Pace::default(),
            drain: flows.load.drain,
            servers_until: None,
            servers_act: false,
            awaited: afters
                .iter()
                .flat_map(|after| &after.of)
                .filter_map(|part| match part {
                    Part::Template(number) => Some(*number),
                    _ => None,
                })
                .collect(),
        }
    }

    /// Sets whether the frames of ports that are added are hashed.
    pub fn hashing(self, fingerprint: bool) -> Self {
        Self { fingerprint, ..self }
    }

    /// Reports templates that others wait for, when all of their flows have ended.
    fn report_ends(&mut self, turn: &mut Turn<'_>) {
        let now = self.now(turn.watch);
        let ports = &self.ports;
        self.awaited.retain(|&template| {
            let mut here = ports.iter().filter_map(|port| {
                let lost = port.out.counters.error.is_some();
                Some(port.side.has_ended(port.traffic(now), template)? || lost)
            });
            let Some(first) = here.next() else { return false };
            let ended = first && here.all(|ended| ended);
            if ended {
                turn.ended.push((Part::Template(template), self.clock.since_start(now)));
            }
            !ended
        });
    }

    /// Adds a port.
    ///
    /// # Panics
    /// If the flows have no side for the port, if [`check`] would refuse that side, or if the port
    /// has no outlet.
    pub fn add(
        &mut self,
        flows: &PlanFlows,
        port: usize,
        (facts, virtual_bps): (&PortFacts, Option<u64>),
        outlets: &mut Outlets,
        (part, worker, relay): (Division, (u32, u32), Option<Relay>),
    ) {
        let of =
            flows.sides.iter().find(|side| side.port == port).expect("a port of flows has a side");
        let start = match self.clock {
            Clock::Real(start) => start,
            Clock::Virtual => Nanos::ZERO,
        };
        let settings = SideSettings {
            role: of.role,
            worker,
            part,
            start,
            origin: Some(Instant::now()),
            flows: of.flows,
            clients: of.clients,
            servers: of.servers,
            gso_max_size: of.gso_max_size(facts.segmentation) as u16,
            ..SideSettings::default()
        };
        let mut side =
            Side::new(&flows.load, &of.network, settings).expect("the flows were checked before");
        side.use_hosts(&flows.load, &self.tables);
        let longest = of.max_frame(facts.segmentation).min(facts.max_slot()) as usize;
        let member = outlets.join(port).expect("a port of flows has an outlet");
        // Timers run before it is known which frames they will cause, so the turn as a whole is
        // paced.
        outlets.share(member);
        let fingerprint = self.fingerprint.then(Fingerprint::default);
        let counters = PortTx { port, source: SourceId::FLOWS, fingerprint, ..PortTx::default() };
        let mut out = Output::new(member, facts, longest, counters);
        out.wire = virtual_bps.filter(|_| self.clock == Clock::Virtual).map(Wire::new);
        self.ports.push(PlayerPort {
            port,
            side,
            lag: Nanos::ZERO,
            horizon: Nanos(u64::MAX),
            stamped: facts.timestamps != Timestamps::None,
            polled: [Nanos::ZERO; 2],
            clients: of.role != Role::Servers,
            relay,
            out,
            virtual_now: (self.clock == Clock::Virtual).then_some(Nanos::ZERO),
            held: VecDeque::new(),
            spare: Vec::new(),
            near: Vec::with_capacity(BATCH),
            came: false,
        });
    }

    fn now(&self, watch: &mut Watch) -> Nanos {
        if self.clock == Clock::Virtual { self.virtual_now } else { watch.now() }
    }

    /// Whether no further flow may begin. A port that lags may begin flows after `end` for the
    /// length of its lag, because they were due before `end`.
    fn is_over(&self, now: Nanos, end: Picos) -> bool {
        let lag = self.ports.iter().map(|port| port.lag).max().unwrap_or_default();
        let late = Picos::from(lag).0.min(OVERTIME);
        self.clock.since_start(now).0 >= end.0.saturating_add(late)
    }

    /// Checks whether servers still send of their own accord after their clients have ended, as
    /// with voice. They get the drain time for it, counted from the end of the clients or from the
    /// stop.
    fn check_servers(&mut self, watch: &mut Watch) {
        let over = |port: &PlayerPort| port.side.is_over() || port.out.counters.error.is_some();
        let mut clients = self.ports.iter().filter(|port| port.clients).peekable();
        self.servers_act = false;
        if clients.peek().is_none() || !clients.all(over) {
            return;
        }
        let acts = |port: &PlayerPort| !port.clients && port.side.acts() && !over(port);
        if self.ports.iter().any(acts) {
            let now = self.now(watch);
            let until = *self.servers_until.get_or_insert(now + self.drain);
            self.servers_act = now < until;
        }
    }

    fn stop(&mut self, watch: &mut Watch) {
        let now = self.now(watch);
        self.servers_until.get_or_insert(now + self.drain);
        self.stopped = true;
        // A side with only servers stops at once, because their clients are on another node and
        // might never end.
        for port in self.ports.iter_mut().filter(|port| port.clients || !self.has_clients) {
            port.side.stop(port.traffic(now));
        }
    }

    /// When the next timer or flow start is due, on the engine's clock.
    fn next(&self, outlets: Option<&Outlets>, end: Picos) -> Option<Nanos> {
        let real = |port: &PlayerPort, due: Nanos| match outlets {
            Some(outlets) if self.clock != Clock::Virtual && port.lag > Nanos::ZERO => {
                outlets.real_due(port.out.member, self.clock, due)
            }
            _ => due,
        };
        let due = |port: &PlayerPort| {
            let held = port.held.front().map(|held| held.0);
            let own = match port.out.wire.filter(|wire| !wire.has_room(self.virtual_now)) {
                Some(wire) if port.out.has_room() => Some(wire.room_at()),
                Some(_) => None,
                None => port.side.next_due().filter(|_| port.out.has_room()),
            };
            held.into_iter().chain(own.map(|due| real(port, due))).min()
        };
        let next = self.ports.iter().filter_map(due).min();
        if self.stopped {
            return next;
        }
        let end = self.clock.instant(Picos(end.0.min(u64::MAX / 2)));
        Some(next.map_or(end, |next| next.min(end)))
    }

    fn is_full(&self) -> bool {
        self.ports.iter().any(|port| port.out.is_full())
    }
}

/// Open TCP flows of the load.
#[derive(Clone, Debug, Default)]
struct OpenFlows {
    /// The largest number of flows' numbers on any side.
    pub(crate) records: u32,
    /// Each flow with its port.
    flows: Vec<(usize, OpenFlow)>,
}

/// Maximum number of records per answer: an answer takes some 100 us, in which the worker does not
/// receive.
const RECORDS_AT_ONCE: u32 = 4096;

/// The open TCP flows, each with its port. Stops after the answer in which `most` is reached.
///
/// Asks in parts, as [`Running::received_flows`]: flows that begin or end meanwhile may be missing.
pub fn open_flows(running: &Running, most: usize) -> Vec<(usize, OpenFlow)> {
    let mut all = Vec::new();
    for from in (0..u32::MAX - RECORDS_AT_ONCE).step_by(RECORDS_AT_ONCE as usize) {
        let end = from + RECORDS_AT_ONCE;
        let parts: Vec<OpenFlows> = running.show(&(from..end));
        let more = parts.iter().any(|part| part.records > end);
        all.extend(parts.into_iter().flat_map(|part| part.flows));
        if !more || all.len() > most {
            break;
        }
    }
    all
}

impl Source for Player {
    /// Runs a turn, in which no flow begins after the end of the run.
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut moved = false;
        let (now, end) = (self.now(turn.watch), turn.budget.end);
        self.end = end;
        if !self.stopped && self.clock.since_start(now) >= end && self.is_over(now, end) {
            let until = self.clock.instant(end);
            self.ports.iter_mut().for_each(|port| port.side.give_up_before(until));
            self.stop(turn.watch);
        }
        for i in 0..self.ports.len() {
            let now = self.now(turn.watch);
            let port = &mut self.ports[i];
            self.pace.moved |= std::mem::take(&mut port.came);
            // Flows that became due during the turn wait for the next one, because the overdue
            // times of this turn do not include them.
            let traffic = port.traffic(now).min(port.horizon);
            port.side.advance(traffic);
            // No flow begins while frames wait for room in the port.
            let begun = match port.out.has_room() && port.out.wire_has_room(now) {
                true => port.side.begin(traffic, BEGIN),
                false => 0,
            };
            moved |= begun > 0;
            let lag = port.lag;
            moved |= port.out.turn((now, lag), &mut port.side, turn);
            // Without a port, flows cannot end, and hosts of other ports would wait for them.
            if port.clients && port.out.counters.error.is_some() {
                port.side.release_hosts();
            }
        }
        self.check_servers(turn.watch);
        let without_hosts = self.ports.iter().filter(|port| !port.side.uses_hosts()).count();
        // Hosts that wait for the last flow must not sleep until their next timer.
        moved |= std::mem::replace(&mut self.without_hosts, without_hosts) != without_hosts;
        self.pace.moved |= moved;
        if !self.awaited.is_empty() {
            self.report_ends(turn);
        }
        moved
    }

    fn owe(&mut self, outlets: &mut Outlets) {
        for port in &mut self.ports {
            let due = port.side.next_due().filter(|_| port.out.has_room());
            port.out.owed = due.map(|due| self.clock.since_start(due).0);
            if let Some(due) = port.out.owed {
                outlets.owe(port.out.member, due);
            }
        }
    }

    fn begin_turn(&mut self, now: Nanos, outlets: &Outlets) {
        let at = self.clock.since_start(now).0;
        for port in &mut self.ports {
            let traffic = outlets.of(port.out.member).traffic(at);
            port.lag = Picos(at - traffic.min(at)).as_nanos();
            port.horizon = port.traffic(now) + SLIP;
            port.side.set_lag(port.lag);
        }
    }

    fn next_due(&mut self, outlets: &Outlets, end: Picos) -> Option<Picos> {
        self.next(Some(outlets), end).map(|next| self.clock.since_start(next))
    }

    /// Whether nothing is left to begin. Servers without clients end when they are stopped.
    fn is_done(&self) -> bool {
        // Servers run as long as any worker has clients, or until their last flows have ended if
        // hosts keep their addresses for these.
        let is_over = |port: &PlayerPort| match port.clients || !self.has_clients {
            true => port.side.is_over(),
            false => !port.side.awaits_last_flows(),
        };
        let over = |port: &PlayerPort| is_over(port) || port.out.counters.error.is_some();
        !self.servers_act && self.ports.iter().all(over)
    }

    fn reacts(&self) -> bool {
        true
    }

    fn rest(&mut self, now: Nanos) -> Rest {
        let sides = || self.ports.iter().map(|port| &port.side);
        let open = || {
            sides().fold(OpenCounts::default(), |sum, side| OpenCounts {
                flows: sum.flows + side.active(),
                lanes: sum.lanes + side.lanes(),
            })
        };
        let streams = || sides().map(|side| side.streams()).sum();
        match (self.pace.gathers(now, open, streams), self.is_full()) {
            (Some(time), _) => Rest::Gather(time),
            (None, true) => Rest::Full,
            (None, false) => Rest::Frames,
        }
    }

    fn pass(&mut self, until: Picos) -> bool {
        let next = self.next(None, self.end).filter(|_| !self.is_done());
        let is_full = self.is_full();
        pass(&mut self.virtual_now, next, is_full, until);
        for port in &mut self.ports {
            port.virtual_now = Some(self.virtual_now);
        }
        true
    }

    fn time(&self) -> Nanos {
        self.virtual_now
    }

    fn apply(&mut self, command: &Command, at: Picos, turn: &mut Turn<'_>) -> u64 {
        let now = self.now(turn.watch);
        let tables = self.tables.clone();
        let mut each = |act: &dyn Fn(&mut Side, Nanos)| {
            let ports = self.ports.iter_mut();
            ports.for_each(|port| {
                let now = port.traffic(now);
                act(&mut port.side, now);
            });
        };
        let Some(template) = command.template() else { return 0 };
        match &command.action {
            Action::Pause => each(&|side, now| side.pause(now, template)),
            Action::Resume => each(&|side, now| side.resume(now, template)),
            Action::Begin => {
                let Some(number) = template else { return 0 };
                let at = self.clock.instant(at);
                self.ports.iter_mut().for_each(|port| port.side.begin_template(at, number));
            }
            Action::Replace(Content::Load(load)) => {
                each(&|side, now| {
                    side.change(now, load);
                    side.use_hosts(load, &tables);
                });
                return u64::from(!self.ports.is_empty());
            }
            Action::Ignore(senders) => each(&|side, _| side.ignore(senders)),
            Action::Interfaces(port, interfaces) => {
                let own = self.ports.iter_mut().filter(|own| own.port == *port);
                own.for_each(|own| own.side.set_interfaces(interfaces));
            }
            Action::Stop => self.stop(turn.watch),
            _ => {}
        }
        0
    }

    /// Aborts open flows, a thousand per call, and sends their last frames.
    fn settle(&mut self, turn: &mut Turn<'_>) -> bool {
        let now = self.now(turn.watch);
        self.ports.iter_mut().for_each(|port| port.side.abort(port.traffic(now)));
        // The wire is removed, because the end of the run takes no virtual time.
        self.ports.iter_mut().for_each(|port| port.out.wire = None);
        // The end is lifted, because aborts must leave although it has passed.
        let end = std::mem::replace(&mut turn.budget.end, Picos(u64::MAX));
        self.turn(turn);
        turn.budget.end = end;
        let over = |port: &PlayerPort| port.side.is_over() || port.out.counters.error.is_some();
        self.ports.iter().all(over)
    }

    fn close(&mut self, outlets: &mut Outlets) {
        self.ports.iter_mut().for_each(|port| port.out.close(outlets));
    }

    fn snapshot(&self, full: bool, stalls: Stalls, into: &mut Snapshot) {
        for port in &self.ports {
            into.tx.push(PortTx { stalls, ..port.out.counters.clone() });
            into.flows.push(FlowStats { port: port.port, statistics: port.side.statistics(full) });
        }
    }

    fn counters(&self, into: &mut Counters) {
        into.tx.extend(self.ports.iter().map(|port| port.out.counters.sent()));
        into.acts |= self.ports.iter().any(|port| !port.clients && port.side.acts());
    }

    fn show(&self, now: Nanos, wanted: &Wanted) -> Option<Shown> {
        if !wanted.is::<OpenFlows>() {
            return None;
        }
        let records = &wanted.records;
        let now = if self.clock == Clock::Virtual { self.virtual_now } else { now };
        let mut open = OpenFlows::default();
        for port in &self.ports {
            open.records = open.records.max(port.side.records());
            let most = records.end - records.start;
            let here = port.side.look(now, records.start, most);
            open.flows.extend(here.map(|flow| (port.port, flow)));
        }
        Some(Box::new(open))
    }

    fn sink(&mut self, port: usize) -> Option<&mut dyn Sink> {
        let port = self.ports.iter_mut().find(|of| of.port == port)?;
        Some(port)
    }
}

impl Sink for PlayerPort {
    fn take(&mut self, frames: &mut Frames<'_>) {
        let now = self.virtual_now.unwrap_or(frames.now);
        let (batch, claims) = frames.claims();
        self.near.clear();
        self.near.resize(batch.frames.len().min(BATCH), FlowHint::default());
        let mut near = std::mem::take(&mut self.near);
        // Prefetches for the whole batch first, so that the cache misses of its flows overlap.
        self.side.prefetch(batch.iter().map(|(octets, _)| octets), &mut near);
        if self.relay.is_some() {
            self.hand_over(&batch, claims);
        }
        // `near` may be shorter than the batch.
        let all = near.iter().copied().chain(std::iter::repeat(FlowHint::default()));
        for (((octets, frame), near), claim) in batch.iter().zip(all).zip(claims) {
            // A capture on the port may have asked the kernel for frames that this host sends.
            if frame.outgoing || *claim {
                continue;
            }
            self.came = true;
            let came = ReceiveOffloads { cut: frame.cut, partial: frame.partial };
            *claim = self.take_one(now, octets, (came, frame.time), near);
        }
        self.near = near;
    }

    fn advance(&mut self, now: Nanos) -> bool {
        self.polled = [now, self.polled[0]];
        let now = self.virtual_now.unwrap_or(now);
        let mut any = false;
        while let Some((time, came, octets)) = self.held.pop_front_if(|held| held.0 <= now) {
            self.receive(now, &octets, (came, time), FlowHint::default());
            self.spare.push(octets);
            any = true;
        }
        for _ in 0..HANDED_AT_ONCE {
            let Some(strays) = self.relay.as_mut().and_then(Relay::take) else { break };
            for (octets, stray) in strays.iter() {
                match stray.is_copy {
                    true => self.side.learn_neighbor(octets),
                    false => {
                        let of = (stray.came, stray.time);
                        self.take_one(now, octets, of, FlowHint::default());
                    }
                }
            }
            any = true;
        }
        self.came |= any;
        any
    }

    fn is_ack_overdue(&self) -> bool {
        self.side.is_ack_overdue()
    }
}

impl PlayerPort {
    /// Traffic time at `now`.
    #[inline]
    fn traffic(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.lag)
    }

    #[inline]
    fn receive(
        &mut self,
        now: Nanos,
        octets: &[u8],
        (came, time): (ReceiveOffloads, Nanos),
        near: FlowHint,
    ) -> bool {
        if self.virtual_now.is_none() {
            self.side.arrived(if self.stamped { time.min(now) } else { self.polled[1] });
            self.out.uncertain += u64::from(!self.stamped);
        }
        self.side.receive(self.traffic(now), octets, came, near)
    }

    /// Takes a frame, or holds it until its arrival time. Returns whether it was addressed to the
    /// side.
    #[inline]
    fn take_one(
        &mut self,
        now: Nanos,
        octets: &[u8],
        (came, time): (ReceiveOffloads, Nanos),
        near: FlowHint,
    ) -> bool {
        if time <= now + LATER && self.held.is_empty() {
            return self.receive(now, octets, (came, time), near);
        }
        if !self.side.claims(octets) {
            return false;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(octets);
        self.held.push_back((time, came, copy));
        true
    }

    /// Relays frames of other workers' flows to them, and claims these frames.
    fn hand_over(&mut self, batch: &RxBatch<'_>, claims: &mut [bool]) {
        let Some(relay) = &mut self.relay else { return };
        for ((octets, frame), claim) in batch.iter().zip(claims) {
            if frame.outgoing || *claim {
                continue;
            }
            match self.side.owner(octets) {
                FrameOwner::Here => {}
                FrameOwner::Other(worker) => {
                    relay.gather(worker, octets, frame);
                    *claim = true;
                }
                FrameOwner::All => relay.gather_for_all(octets, frame),
            }
        }
        let (handed, dropped) = relay.hand_over();
        self.side.relayed(handed, dropped);
    }
}

impl FrameMaker for Side {
    #[inline]
    fn has_frames(&self) -> bool {
        self.has_output()
    }

    #[inline]
    fn fill(&mut self, now: Nanos, lag: Nanos, room: &mut Room<'_>) {
        self.transmit(now.saturating_sub(lag), room);
    }
}

/// A tick of the flows' stack is 2^16 ns.
const TICK_BITS: u32 = 16;

impl FrameOutput for Room<'_> {
    /// Due is the latest time that is not after now and whose tick number has `tick` as its lower
    /// half.
    #[inline]
    fn due(&mut self, tick: u32) {
        let this = self.now().0 >> TICK_BITS;
        let before = (this as u32).wrapping_sub(tick).cast_signed().max(0);
        self.due = Nanos(this.saturating_sub(before as u64) << TICK_BITS);
    }

    #[inline]
    fn frame(&mut self, len: usize, cut: Cut) -> Option<&mut [u8]> {
        Room::frame(self, len, cut)
    }

    fn longest(&self) -> usize {
        Room::longest(self)
    }
}

#[cfg(test)]
mod tests;
