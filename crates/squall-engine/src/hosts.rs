//! Groups of hosts, and routers, as a source: a worker starts the hosts, runs their timers, and
//! sends the frames of both.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use squall_host::{
    FrameQueue, GroupSettings, GroupStatistics, HostEvent, HostGroup, HostTable, HostView,
    PppoeSettings,
};
use squall_plan::{Plan, PlanHosts, PlanRouter, SourceId};
use squall_port::{FrameLink, PortFacts, Timestamps};
use squall_stats::Fingerprint;
use squall_units::{Cut, Nanos, Picos};

use crate::{
    Clock, Counters, PortTx, Snapshot,
    clock::{Stalls, Watch},
    command::{Action, Command},
    learnt::{self, LearntTable, MOST_DESTINATIONS},
    native::NativeRouter,
    output::{FrameMaker, Output, Room},
    routers::{DaemonLink, RouterEnd, RouterQueues, UNSCHEDULED},
    sink::{Frames, Shown, Sink, Wanted},
    source::{LATER, Outlets, Rest, SLIP, Source, Turn, pass},
    supervisor::{END_OF_TIME, Running},
};

/// Results of a group of hosts.
#[derive(Clone, Debug)]
pub struct HostStats {
    /// Number of the group in the plan.
    pub group: usize,
    pub statistics: GroupStatistics,
}

/// Some hosts of a run.
#[derive(Clone, Debug, Default)]
pub struct SeenHosts {
    /// The start of the run. Times of hosts are on the same clock, less the lag of their port.
    pub start: Nanos,
    /// Each host with the number of its group in the plan.
    pub hosts: Vec<(usize, HostView)>,
}

/// The last events of one host.
#[derive(Clone, Debug)]
pub struct SeenLog {
    pub start: Nanos,
    pub group: usize,
    pub host: HostView,
    /// Oldest first.
    pub events: Vec<HostEvent>,
    /// Since when the log of the group has all events; `None`: it is empty.
    pub since: Option<Nanos>,
    /// Whether events before that are lost.
    pub is_full: bool,
}

/// Maximum number of hosts per answer: one takes some 100 us, in which the worker does not receive.
const HOSTS_AT_ONCE: usize = 1024;

/// Number of the first host of each group of `plan`, if the hosts of all groups are counted
/// together.
fn first_hosts(plan: &Plan) -> Vec<u32> {
    let counts = plan.hosts.iter().map(|group| group.settings.count);
    counts.scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect()
}

/// Calls `with` with the hosts whose numbers are in `range`, in parts and in order. Hosts are
/// counted over all groups of the plan. Hosts of other nodes are missing.
pub fn hosts(running: &Running, range: Range<usize>, mut with: impl FnMut(SeenHosts)) {
    for from in range.clone().step_by(HOSTS_AT_ONCE) {
        let to = (from + HOSTS_AT_ONCE).min(range.end);
        let parts: Vec<SeenHosts> = running.show(&(from as u32..to as u32));
        let start = parts.first().map_or(Nanos::ZERO, |part| part.start);
        let mut hosts: Vec<_> = parts.into_iter().flat_map(|part| part.hosts).collect();
        hosts.sort_by_key(|(group, host)| (*group, host.number));
        with(SeenHosts { start, hosts });
    }
}

/// The last events of host number `host` of a group; `None`: this node has no such host.
pub fn host_log(running: &Running, group: usize, host: u32) -> Option<SeenLog> {
    let at = first_hosts(running.plan()).get(group)?.checked_add(host)?;
    running.show::<SeenLog>(&(at..at + 1)).into_iter().find(|seen| seen.group == group)
}

/// The groups from whose hosts other sources send, by their numbers in the plan, and learnt routes
/// after them. All workers of a run have the same tables.
pub(crate) type HostTables = Arc<[Option<Arc<HostTable>>]>;

/// The links to the routers of a plan, by number. The worker with the router takes its link.
pub type RouterLinks = Vec<Option<Box<dyn FrameLink>>>;

/// The tables for `plan`.
pub(crate) fn tables(plan: &Plan) -> HostTables {
    let shared = plan.shared_hosts();
    let table = |(number, group): (usize, &PlanHosts)| {
        let used = !group.elsewhere && shared.contains(&number);
        let GroupSettings { count, mac, mac_step, tags, pppoe, .. } = &group.settings;
        let table = || {
            let table = HostTable::new(*count, (*mac, *mac_step), tags);
            let table = if group.is_ipv6() { table.over_ipv6() } else { table };
            match pppoe {
                Some(PppoeSettings::Server(of)) => table.with_sessions(of.first, of.count),
                Some(PppoeSettings::Client(_)) | None => table,
            }
        };
        used.then(|| Arc::new(table()))
    };
    let learnt = plan.learnt_routes();
    let learnt_table = |number: usize| {
        let routes = learnt.iter().find(|routes| routes.table == plan.hosts.len() + number)?;
        let elsewhere = plan.routers[routes.router].elsewhere;
        (!elsewhere).then(|| learnt::table(routes.is_ipv6, MOST_DESTINATIONS))
    };
    let of_groups = plan.hosts.iter().enumerate().map(table);
    of_groups.chain((0..2 * plan.routers.len()).map(learnt_table)).collect()
}

/// The groups of hosts and the routers of a worker.
pub(crate) struct Hosts {
    clock: Clock,
    ports: Vec<HostPort>,
    /// Whether only hosts send: if nothing else ends the run, it ends with them.
    alone: bool,
    /// Whether any group does more than answer.
    asks: bool,
    /// The end of the run, as of the last turn.
    end: Picos,
    stopped: bool,
    /// The run is over, but hosts keep their addresses until the last flows of other sources have
    /// ended.
    over: bool,
    /// Whether to hash all sent frames.
    fingerprint: bool,
    tables: HostTables,
    /// See [`first_hosts`].
    first: Vec<u32>,
    /// On virtual time: the current time.
    virtual_now: Nanos,
}

/// A group with its number in the plan.
type Numbered = (usize, HostGroup);

struct HostPort {
    port: usize,
    groups: Vec<Numbered>,
    routers: Vec<RouterEnd>,
    frames: HostFrames,
    out: Output,
    /// The lag of the port's traffic clock in this turn, and the traffic time.
    lag: Nanos,
    horizon: Nanos,
    /// Whether frames have receive timestamps. Otherwise a frame may have arrived at any time
    /// since the last poll of the port.
    stamped: bool,
    polled: [Nanos; 2],
    virtual_now: Option<Nanos>,
    /// Frames that an emulated delay ([`squall_port::fault`]) holds back: time, whether the
    /// checksum is partial, octets.
    held: VecDeque<(Nanos, bool, Vec<u8>)>,
}

/// Frames that wait for the port. The due times of those of groups are in traffic time.
#[derive(Default)]
struct HostFrames {
    queue: FrameQueue,
    /// Frames of native routers, which fill it as far as they may: hosts do not wait for them.
    native: FrameQueue,
    /// Frames that are longer than the port's longest.
    too_long: u64,
}

impl Hosts {
    pub fn new(clock: Clock, plan: &Plan, tables: HostTables) -> Self {
        Self {
            clock,
            ports: Vec::new(),
            alone: plan.only_hosts(),
            asks: false,
            end: Picos(u64::MAX),
            stopped: false,
            over: false,
            fingerprint: false,
            tables,
            first: first_hosts(plan),
            virtual_now: Nanos::ZERO,
        }
    }

    /// Sets whether the frames of ports that are added are hashed.
    pub fn hashing(self, fingerprint: bool) -> Self {
        Self { fingerprint, ..self }
    }

    /// Adds the groups of a port that has an outlet on this worker.
    pub fn add(
        &mut self,
        plan: &Plan,
        (port, facts): (usize, &PortFacts),
        links: &mut RouterLinks,
        outlets: &mut Outlets,
    ) {
        let Some(member) = outlets.join(port) else { return };
        // Timers run before it is known which frames they will cause, so the turn as a whole is
        // paced.
        outlets.share(member);
        let begin = self.clock.instant(Picos(0));
        let groups: Vec<_> = plan
            .hosts_on(port)
            .map(|(number, of)| {
                let group = HostGroup::new(of.settings.clone(), begin);
                match &self.tables[number] {
                    Some(table) => (number, group.sharing(table.clone())),
                    None => (number, group),
                }
            })
            .collect();
        let router = |(number, of): (usize, &PlanRouter)| {
            if of.settings.daemon.native().is_some() {
                let learnt = LearntTable::of(plan, number, &self.tables);
                let native = NativeRouter::new(plan, number, begin).sharing(learnt);
                return Some(RouterEnd::Native(Box::new(native)));
            }
            let link = links.get_mut(number)?.take()?;
            Some(RouterEnd::Daemon(DaemonLink::new(number, of.settings.mac, link)))
        };
        let routers = plan.routers_on(port).filter_map(router).collect();
        self.asks |= groups.iter().any(|(_, group)| !group.settings().only_answers());
        let longest = plan.ports[port].max_frame as usize;
        let fingerprint = self.fingerprint.then(Fingerprint::default);
        let counters = PortTx { port, source: SourceId::HOSTS, fingerprint, ..PortTx::default() };
        self.ports.push(HostPort {
            port,
            groups,
            routers,
            frames: HostFrames::default(),
            out: Output::new(member, facts, longest, counters),
            lag: Nanos::ZERO,
            horizon: Nanos(u64::MAX),
            stamped: facts.timestamps != Timestamps::None,
            polled: [Nanos::ZERO; 2],
            virtual_now: (self.clock == Clock::Virtual).then_some(Nanos::ZERO),
            held: VecDeque::new(),
        });
    }

    fn now(&self, watch: &mut Watch) -> Nanos {
        if self.clock == Clock::Virtual { self.virtual_now } else { watch.now() }
    }

    fn stop(&mut self, watch: &mut Watch) {
        let now = self.now(watch);
        self.stopped = true;
        for port in &mut self.ports {
            let native = &mut port.frames.native;
            port.routers.iter_mut().for_each(|router| router.stop(now, native));
            let now = port.traffic(now);
            port.groups.iter_mut().for_each(|(_, group)| group.stop(now));
        }
    }

    fn is_in_use(&self) -> bool {
        let open = self.ports.iter().filter(|port| port.out.counters.error.is_none());
        open.flat_map(|port| &port.groups).any(|(_, group)| group.is_in_use())
    }

    /// Whether each host that asks for something has a result; after the stop, whether all is sent.
    fn is_settled(&self) -> bool {
        self.ports.iter().all(|port| {
            let settled = port.groups.iter().all(|(_, group)| group.is_settled());
            let settled = settled && (!self.stopped || port.routers.iter().all(RouterEnd::is_over));
            port.out.counters.error.is_some() || (settled && port.is_idle())
        })
    }

    fn has_end(&self) -> bool {
        self.end < END_OF_TIME
    }

    /// When the next timer is due, on the engine's clock.
    fn next(&self, outlets: Option<&Outlets>) -> Option<Nanos> {
        let due = |port: &HostPort| {
            let groups = port.groups.iter().filter_map(|(_, group)| group.next_due());
            let own = groups.min().filter(|_| port.out.has_room());
            let own = own.map(|due| match outlets {
                Some(outlets) if port.lag > Nanos::ZERO => {
                    outlets.real_due(port.out.member, self.clock, due)
                }
                _ => due,
            });
            // After the stop, no link is read, so its next read would stay due.
            let routers = port.routers.iter().filter(|_| port.out.has_room());
            let routers = routers.filter_map(|router| router.next_due(self.stopped));
            own.into_iter().chain(port.held.front().map(|held| held.0)).chain(routers).min()
        };
        let next = self.ports.iter().filter_map(due).min();
        if self.stopped || self.over || !self.has_end() {
            return next;
        }
        let end = self.clock.instant(self.end);
        Some(next.map_or(end, |next| next.min(end)))
    }

    fn is_full(&self) -> bool {
        self.ports.iter().any(|port| port.out.is_full())
    }

    /// Each group with a host whose number is in `range`, and those of its hosts.
    fn groups_in(
        &self,
        range: &Range<u32>,
    ) -> impl Iterator<Item = (&HostPort, &Numbered, Range<u32>)> {
        let all = self.ports.iter().flat_map(|port| port.groups.iter().map(move |of| (port, of)));
        all.filter_map(|(port, of)| {
            let (first, count) = (self.first[of.0], of.1.settings().count);
            let from = range.start.saturating_sub(first);
            let to = range.end.saturating_sub(first).min(count);
            (from < to).then_some((port, of, from..to))
        })
    }
}

impl Source for Hosts {
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool {
        self.end = turn.budget.end;
        let now = self.now(turn.watch);
        let over = self.clock.since_start(now) >= self.end;
        // A run of hosts alone ends when each has a result.
        let finished = self.alone && self.asks && !self.has_end() && self.is_settled();
        self.over |= over || finished;
        if self.over && !self.stopped && !self.is_in_use() {
            self.stop(turn.watch);
        }
        let mut moved = false;
        for port in &mut self.ports {
            // Hosts that became due since the turn began wait for the next turn, because the overdue
            // times of this one do not include them.
            let traffic = port.traffic(now).min(port.horizon);
            if port.out.has_room() {
                for (_, group) in &mut port.groups {
                    moved |= group.advance(traffic, &mut port.frames.queue);
                }
                let HostFrames { queue: shared, native, .. } = &mut port.frames;
                let mut queues = RouterQueues { shared, native };
                for router in &mut port.routers {
                    moved |= router.advance(now, self.stopped, &mut queues);
                }
            }
            let lag = port.lag;
            moved |= port.out.turn((now, lag), &mut port.frames, turn);
        }
        moved
    }

    fn owe(&mut self, outlets: &mut Outlets) {
        for port in &mut self.ports {
            let due = port.groups.iter().filter_map(|(_, group)| group.owed()).min();
            let due = due.filter(|_| port.out.has_room());
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
        }
    }

    fn next_due(&mut self, outlets: &Outlets, _end: Picos) -> Option<Picos> {
        let real = (self.clock != Clock::Virtual).then_some(outlets);
        self.next(real).map(|next| self.clock.since_start(next))
    }

    fn is_done(&self) -> bool {
        let lost = |port: &HostPort| port.out.counters.error.is_some();
        if self.stopped || self.ports.iter().all(lost) {
            return self.is_settled();
        }
        // Hosts live as long as the run, if it has an end; without one, other sources decide, unless
        // there are none. Hosts that only answer then wait until they are stopped.
        !self.has_end() && !self.alone && self.is_settled()
    }

    fn reacts(&self) -> bool {
        true
    }

    fn rest(&mut self, _now: Nanos) -> Rest {
        if self.is_full() { Rest::Full } else { Rest::Frames }
    }

    fn pass(&mut self, until: Picos) -> bool {
        let next = self.next(None).filter(|_| !self.is_done());
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

    fn apply(&mut self, command: &Command, _at: Picos, turn: &mut Turn<'_>) -> u64 {
        if let Action::Router(number, order, duration) = &command.action {
            let now = self.now(turn.watch);
            let routers = self.ports.iter_mut().flat_map(|port| &mut port.routers);
            for router in routers {
                if let RouterEnd::Native(router) = router
                    && router.router() == *number
                {
                    router.order(now, order.clone(), *duration);
                }
            }
        }
        self.over |= command.part.is_none() && matches!(command.action, Action::Stop);
        if self.over && !self.stopped && !self.is_in_use() {
            self.stop(turn.watch);
        }
        0
    }

    /// Gives the addresses back that hosts still have.
    fn settle(&mut self, turn: &mut Turn<'_>) -> bool {
        if !self.stopped {
            self.stop(turn.watch);
        }
        let end = std::mem::replace(&mut turn.budget.end, Picos(u64::MAX));
        self.turn(turn);
        turn.budget.end = end;
        self.is_settled()
    }

    fn close(&mut self, outlets: &mut Outlets) {
        self.ports.iter_mut().for_each(|port| port.out.close(outlets));
    }

    fn snapshot(&self, full: bool, stalls: Stalls, into: &mut Snapshot) {
        for port in &self.ports {
            let mut counters = PortTx { stalls, ..port.out.counters.clone() };
            let lost = [("queue_full", port.frames.dropped()), ("too_long", port.frames.too_long)];
            counters.not_sent.extend(lost.into_iter().filter(|(_, frames)| *frames > 0));
            into.tx.push(counters);
            into.hosts.extend(
                port.groups.iter().map(|(group, of)| HostStats {
                    group: *group,
                    statistics: of.statistics(full),
                }),
            );
            into.routers.extend(port.routers.iter().map(RouterEnd::stats));
        }
    }

    fn counters(&self, into: &mut Counters) {
        into.tx.extend(self.ports.iter().map(|port| port.out.counters.sent()));
    }

    fn show(&self, now: Nanos, wanted: &Wanted) -> Option<Shown> {
        let now = if self.clock == Clock::Virtual { self.virtual_now } else { now };
        let start = self.clock.instant(Picos(0));
        if wanted.is::<SeenHosts>() {
            let mut seen = SeenHosts { start, hosts: Vec::with_capacity(wanted.records.len()) };
            for (port, (number, group), hosts) in self.groups_in(&wanted.records) {
                let at = port.traffic(now);
                let views = hosts.filter_map(|host| group.view(host, at));
                seen.hosts.extend(views.map(|host| (*number, host)));
            }
            return Some(Box::new(seen));
        }
        if wanted.is::<SeenLog>() {
            let (port, (number, group), hosts) = self.groups_in(&wanted.records).next()?;
            let log = group.log();
            return Some(Box::new(SeenLog {
                start,
                group: *number,
                host: group.view(hosts.start, port.traffic(now))?,
                events: log.of(hosts.start).copied().collect(),
                since: log.since(),
                is_full: log.is_full(),
            }));
        }
        None
    }

    fn sink(&mut self, port: usize) -> Option<&mut dyn Sink> {
        let port = self.ports.iter_mut().find(|of| of.port == port)?;
        Some(port)
    }
}

impl Sink for HostPort {
    fn take(&mut self, frames: &mut Frames<'_>) {
        let now = self.virtual_now.unwrap_or(frames.now);
        let (batch, claims) = frames.claims();
        for ((octets, frame), claim) in batch.iter().zip(claims) {
            // A capture on the port may have asked the kernel for frames that this host sends.
            if frame.outgoing {
                continue;
            }
            if *claim {
                self.observe(now, frame.time, octets);
                continue;
            }
            if frame.time > now + LATER || !self.held.is_empty() {
                self.held.push_back((frame.time, frame.partial, octets.to_vec()));
                continue;
            }
            let time = if self.stamped { frame.time.min(now) } else { self.polled[1] };
            *claim = self.receive(now, time, (octets, frame.partial));
        }
    }

    fn advance(&mut self, now: Nanos) -> bool {
        self.polled = [now, self.polled[0]];
        let now = self.virtual_now.unwrap_or(now);
        let mut any = false;
        while let Some((time, partial, octets)) = self.held.pop_front_if(|held| held.0 <= now) {
            self.receive(now, time, (&octets, partial));
            any = true;
        }
        any
    }
}

impl HostPort {
    /// Traffic time at `now`.
    #[inline]
    fn traffic(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.lag)
    }

    /// Passes a frame that arrived at `time` to the groups. Returns whether it was for one of them.
    fn receive(&mut self, now: Nanos, time: Nanos, octets: (&[u8], bool)) -> bool {
        let at = match self.virtual_now {
            Some(_) => now,
            None => {
                self.out.uncertain += u64::from(!self.stamped);
                self.traffic(time)
            }
        };
        let Self { groups, routers, frames: HostFrames { queue, native, .. }, .. } = self;
        let routed =
            routers.iter_mut().fold(false, |any, one| one.receive(now, octets, native) | any);
        groups.iter_mut().fold(routed, |any, (_, group)| group.receive(at, octets, queue) | any)
    }

    /// Shows a frame of a stream to groups that measure the reception of multicast groups.
    fn observe(&mut self, now: Nanos, time: Nanos, octets: &[u8]) {
        if octets.first().is_some_and(|to| to & 1 == 1) {
            // On virtual time, hosts had their last turn before the frame left.
            let at = match self.virtual_now {
                Some(last) => time.max(last),
                None => self.traffic(time.min(now)),
            };
            self.groups.iter_mut().for_each(|(_, group)| group.observe(at, octets));
        }
    }

    fn is_idle(&self) -> bool {
        !self.frames.has_frames() && self.out.has_room()
    }
}

impl HostFrames {
    /// Frames that found a queue full.
    fn dropped(&self) -> u64 {
        self.queue.dropped() + self.native.dropped()
    }
}

impl FrameMaker for HostFrames {
    fn has_frames(&self) -> bool {
        !self.queue.is_empty() || !self.native.is_empty()
    }

    fn fill(&mut self, _now: Nanos, lag: Nanos, room: &mut Room<'_>) {
        for (queue, is_native) in [(&mut self.queue, false), (&mut self.native, true)] {
            while let Some((frame, due)) = queue.first() {
                if frame.len() <= room.longest() {
                    let due = if is_native { UNSCHEDULED } else { due };
                    room.due = Nanos(due.0.saturating_add(lag.0));
                    let Some(slot) = room.frame(frame.len(), Cut::WHOLE) else { return };
                    slot.copy_from_slice(frame);
                } else {
                    self.too_long += 1;
                }
                queue.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use squall_program::clock::Planned;
    use squall_units::MacAddr;

    use super::*;
    use crate::{pacing::PortPace, source::Outlet};

    /// A daemon that never sends.
    struct Idle;

    impl FrameLink for Idle {
        fn take(&mut self, _into: &mut [u8]) -> io::Result<Option<usize>> {
            Ok(None)
        }

        fn give(&mut self, _frame: &[u8], _partial: bool) -> io::Result<bool> {
            Ok(true)
        }
    }

    #[test]
    fn frames_that_a_queue_drops_are_counted() {
        let mut frames = HostFrames::default();
        while frames.queue.dropped() == 0 {
            frames.queue.push(Nanos::ZERO, |_| {});
        }
        while frames.native.dropped() < 2 {
            frames.native.push(Nanos::ZERO, |_| {});
        }
        assert_eq!(frames.dropped(), 3);
    }

    #[test]
    fn after_the_stop_no_link_to_a_router_wakes_the_worker() {
        let address = "null:".parse().expect("an address");
        let mut port = squall_port::open(&address).unwrap().expect("a null port");
        let queue = port.open_tx(0, 1514).unwrap();
        let pace = Arc::new(PortPace::new(Planned::default()));
        let mut outlets = Outlets::default();
        outlets.add(Outlet::new(0, queue, None, 1, Nanos::ZERO, pace));
        let member = outlets.join(0).unwrap();
        let counters = PortTx { source: SourceId::HOSTS, ..PortTx::default() };
        let link = DaemonLink::new(0, MacAddr([2, 0, 0, 0, 0, 9]), Box::new(Idle));
        let router = RouterEnd::Daemon(link);
        let of_port = HostPort {
            port: 0,
            groups: Vec::new(),
            routers: vec![router],
            frames: HostFrames::default(),
            out: Output::new(member, port.facts(), 1514, counters),
            lag: Nanos::ZERO,
            horizon: Nanos(u64::MAX),
            stamped: true,
            polled: [Nanos::ZERO; 2],
            virtual_now: None,
            held: VecDeque::new(),
        };
        let mut hosts = Hosts {
            clock: Clock::Real(Nanos::ZERO),
            ports: vec![of_port],
            alone: true,
            asks: false,
            end: END_OF_TIME,
            stopped: false,
            over: false,
            fingerprint: false,
            tables: Arc::new([]),
            first: Vec::new(),
            virtual_now: Nanos::ZERO,
        };
        assert_eq!(hosts.next(None), Some(Nanos::ZERO));
        hosts.stopped = true;
        assert_eq!(hosts.next(None), None);
    }
}
