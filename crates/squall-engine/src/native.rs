//! Native routers: a speaker of BGP in place of a daemon, and the steps that steer it.

mod sets;

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr},
};

use squall_bgp::{
    Counters, EndReason, Family, FaultReason, LastError, LearntChange, MessageCounters,
    Notification, PeerSettings, State, UpdateFaults, UpdateKind, cease,
};
use squall_host::FrameQueue;
use squall_plan::Plan;
use squall_router::{
    Copies, DaemonState, Due, FaultCount, MOST_LEARNT, MessageCounts, Prefix, Prefixes,
    ProtocolState, RouteChanges, RouteGroup, RouteMove, RouterOrder, RouterSettings, Schedule,
    SessionFaults, SessionState, SessionSums, Steered, Step, StepState, check,
};
use squall_speaker::{Order, Peer, Speaker, SpeakerPeer, SpeakerRouter, SpeakerSettings};
use squall_units::{MacAddr, Nanos, mix};

use self::sets::group;
use crate::{learnt::LearntTable, routers::RouterStats};

/// Longest IP packet of a router, octets, and the shortest that every host takes (RFC 791).
const MTU: u32 = 1_500;
const LEAST_MTU: u32 = 576;
/// Time for which a router is away that a step restarts: a daemon needs about as long.
const RESTART: Nanos = Nanos::SECOND;
/// Time after which neighbors may end the sessions of a router that restarts: BIRD's default.
const RESTART_TIME_S: u16 = 120;
/// Time after a step in which the frames are its own.
const WATCHED: Nanos = Nanos::SECOND;
/// Longest time for the ends of sessions after the end of the run.
const GOODBYE: Nanos = Nanos::SECOND;
/// Changes of learnt routes that are passed on in a turn: some 100 us, in which the worker sends no
/// frames.
const SHARED_AT_ONCE: usize = 1_024;
/// If there are more sessions, only those are listed that are not up, and at most as many.
const LISTED: usize = 100;

/// A router of the plan, or as many as its `count`.
pub(crate) struct NativeRouter {
    speaker: Speaker,
    settings: RouterSettings,
    copies: Copies,
    steered: Steered,
    schedule: Schedule,
    /// The start of the run, at which the sessions start.
    begin: Nanos,
    has_started: bool,
    /// When the sessions were ended, because the run was over.
    stopped: Option<Nanos>,
    is_over: bool,
    /// Frames are dropped in both directions.
    is_silent: bool,
    /// Gets the frames of a silent router.
    lost: FrameQueue,
    stats: RouterStats,
    /// Its steps, and its state as of the end of the run.
    state: DaemonState,
    /// Routes of each group that are announced, by family.
    present: Vec<[u64; 2]>,
    /// By session, the ends that steps have caused.
    excused: Vec<Excused>,
    /// Until when sessions may end by a silence that is over.
    excused_until: Option<Nanos>,
    /// The last step, and when it was begun.
    watched: Option<(Option<usize>, Nanos)>,
    /// The first step that the neighbors have not acknowledged.
    open_step: Option<usize>,
    /// Frames came since the last turn: the step may be acknowledged by them.
    has_received: bool,
    /// The routes that it should learn.
    expected: Option<Vec<RouteGroup>>,
    /// Its learnt routes as destinations of streams.
    destinations: Option<LearntTable>,
    /// Changes of these that wait for a turn, before those of the speaker.
    changes: std::vec::IntoIter<LearntChange>,
}

/// A router's number in the plan, the longest packet of its link, the seed of its timers, and the
/// start of the run.
struct LinkSettings {
    number: usize,
    mtu: u32,
    seed: u64,
    begin: Nanos,
}

/// Ends of a session that are not counted, because a step has caused them.
#[derive(Clone, Copy, Debug, Default)]
struct Excused {
    ends: u64,
    /// The next end is one of them: the number of ends before it.
    next: Option<u64>,
}

impl Excused {
    /// Ends of the session, of `downs` in all.
    fn of(self, downs: u64) -> u64 {
        self.ends + u64::from(self.next.is_some_and(|before| downs > before))
    }
}

impl NativeRouter {
    /// The router with this number, whose daemon is native. Its sessions start at `begin`.
    pub fn new(plan: &Plan, number: usize, begin: Nanos) -> Self {
        let router = &plan.routers[number];
        let mtu = plan.ports[router.port].max_frame.saturating_sub(14).clamp(LEAST_MTU, MTU);
        let expected = router.expect.as_ref().map(|expect| {
            let groups = plan.routers[expect.router].settings.groups.iter();
            let is_meant = |name: &str| expect.group.as_ref().is_none_or(|group| group == name);
            groups.filter(|group| is_meant(&group.name)).cloned().collect()
        });
        let seed = mix(plan.seed, number as u64);
        let link = LinkSettings { number, mtu, seed, begin };
        Self::of(router.settings.clone(), &router.steps, expected, &link)
    }

    fn of(
        settings: RouterSettings,
        steps: &[Step],
        expected: Option<Vec<RouteGroup>>,
        link: &LinkSettings,
    ) -> Self {
        let LinkSettings { number, mtu, seed, begin } = *link;
        let copies = settings.daemon.native().unwrap_or(Copies { count: 1, asn_step: 0 });
        let of_speaker = speaker_settings(&settings, copies, mtu, seed);
        let speaker = Speaker::new(of_speaker).expect("TCP works with the usual MTUs");
        let schedule = Schedule::new(steps);
        let steered = Steered::new(&settings);
        let state = DaemonState {
            groups: steered.counts(&settings),
            next_step: schedule.first().cloned(),
            ..DaemonState::default()
        };
        Self {
            present: settings.groups.iter().map(by_family).collect(),
            excused: vec![Excused::default(); speaker.peers().len()],
            excused_until: None,
            speaker,
            copies,
            steered,
            settings,
            schedule,
            begin,
            has_started: false,
            stopped: None,
            is_over: false,
            is_silent: false,
            lost: FrameQueue::default(),
            stats: RouterStats { router: number, ..RouterStats::default() },
            state,
            watched: None,
            open_step: None,
            has_received: false,
            expected,
            destinations: None,
            changes: Vec::new().into_iter(),
        }
    }

    /// Gives other sources its learnt routes as destinations.
    pub fn sharing(mut self, destinations: Option<LearntTable>) -> Self {
        if destinations.is_some() {
            self.speaker.keep_changes();
        }
        self.destinations = destinations;
        self
    }

    pub fn router(&self) -> usize {
        self.stats.router
    }

    /// Handles a frame that arrived at `now`; `partial`: its checksums are not computed yet.
    /// Returns whether it was for this router alone.
    pub fn receive(
        &mut self,
        now: Nanos,
        (frame, partial): (&[u8], bool),
        queue: &mut FrameQueue,
    ) -> bool {
        let Some(to) = frame.first_chunk::<6>() else { return false };
        let is_own = self.has_mac(MacAddr(*to));
        if self.is_over || !self.has_started || !is_own && to[0] & 1 == 0 {
            return false;
        }
        if self.is_silent {
            self.stats.dropped += 1;
            return is_own;
        }
        self.stats.received += 1;
        self.has_received = true;
        self.with(now, queue, |speaker, queue| {
            speaker.receive(now, (frame, partial), queue);
        });
        is_own
    }

    fn has_mac(&self, mac: MacAddr) -> bool {
        let number = bits(mac).wrapping_sub(bits(self.settings.mac));
        number < u64::from(self.copies.count)
    }

    /// Runs the steps and timers that are due by `now`. Returns whether there were any.
    pub fn advance(&mut self, now: Nanos, queue: &mut FrameQueue) -> bool {
        if self.next_due().is_none_or(|due| due > now) {
            return false;
        }
        if !self.has_started {
            self.has_started = true;
            self.with(now, queue, |speaker, queue| speaker.start(now, queue));
        }
        if self.excused_until.take_if(|until| *until <= now).is_some() {
            for (of, peer) in self.excused.iter_mut().zip(self.speaker.peers()) {
                *of = Excused { ends: of.of(peer.session.counters().downs), next: None };
            }
        }
        if self.stopped.is_none() {
            self.share();
            self.steer(now, queue);
        }
        self.with(now, queue, |speaker, queue| speaker.advance(now, queue));
        self.confirm(now);
        self.has_received = false;
        let is_late = self.stopped.is_some_and(|stopped| now >= stopped + GOODBYE);
        self.is_over |= self.stopped.is_some() && (is_late || self.speaker.is_settled());
        true
    }

    /// When [`NativeRouter::advance`] has something to do next.
    pub fn next_due(&self) -> Option<Nanos> {
        if self.is_over {
            return None;
        }
        if !self.has_started {
            return Some(self.begin);
        }
        let is_shared = self.stopped.is_some() || !self.has_changes();
        if self.has_received && self.open_step.is_some() || !is_shared {
            return Some(Nanos::ZERO);
        }
        let steps = self.schedule.next().into_iter().chain(self.steered.next_flap());
        let steps = steps.map(|at| Nanos(self.begin.0.saturating_add(at.0)));
        let steps = steps.filter(|_| self.stopped.is_none());
        let end = self.stopped.map(|stopped| stopped + GOODBYE);
        steps.chain(self.speaker.next_due()).chain(end).chain(self.excused_until).min()
    }

    /// Adds a live order.
    pub fn order(&mut self, now: Nanos, order: RouterOrder, duration: Option<Nanos>) {
        self.schedule.order(now.saturating_sub(self.begin), order, duration);
    }

    /// The run is over: ends all sessions.
    pub fn stop(&mut self, now: Nanos, queue: &mut FrameQueue) {
        if self.stopped.is_some() {
            return;
        }
        self.state = DaemonState { compared: self.compare(), ..self.state() };
        self.stopped = Some(now);
        (self.watched, self.open_step) = (None, None);
        // Sessions that have not started are at their end.
        self.is_over = !self.has_started;
        self.with(now, queue, |speaker, queue| speaker.stop(now, queue));
    }

    /// Whether all sessions have ended after the stop, or had their time for it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Calls the speaker, and counts the frames that it sends.
    fn with(
        &mut self,
        now: Nanos,
        queue: &mut FrameQueue,
        call: impl FnOnce(&mut Speaker, &mut FrameQueue),
    ) {
        if self.is_silent {
            call(&mut self.speaker, &mut self.lost);
            while !self.lost.is_empty() {
                self.lost.pop();
            }
            return;
        }
        let before = queue.len();
        call(&mut self.speaker, queue);
        let sent = queue.len() - before;
        self.stats.sent += sent as u64;
        if let Some((Some(step), begun)) = self.watched
            && sent > 0
            && now <= begun + WATCHED
        {
            let since = now.saturating_sub(self.begin);
            let first = self.state.steps.get(step).and_then(|step| step.sent);
            let first = first.map_or(since, |(first, _)| first);
            self.state.note_frames(step, (first, since));
        }
    }

    /// Updates the destinations, by a part of the changes if there are many. They stay after the
    /// end of the run, because frames that were due before it may still leave.
    fn share(&mut self) {
        let Some(destinations) = self.destinations.as_mut() else { return };
        for _ in 0..SHARED_AT_ONCE {
            if self.changes.len() == 0 {
                self.changes = self.speaker.take_changes().into_iter();
            }
            let Some(change) = self.changes.next() else { break };
            destinations.change(change);
        }
    }

    /// Whether changes of the destinations wait.
    fn has_changes(&self) -> bool {
        self.destinations.is_some() && (self.changes.len() > 0 || self.speaker.has_changes())
    }

    // Steps.

    fn steer(&mut self, now: Nanos, queue: &mut FrameQueue) {
        let since = now.saturating_sub(self.begin);
        while let Some(due) = self.schedule.take(since) {
            self.carry_out(due, now, queue);
        }
        let moves = self.steered.flap_moves(since);
        self.change_routes(now, RouteChanges { moves, ..RouteChanges::default() }, queue);
    }

    fn carry_out(&mut self, due: Due, now: Nanos, queue: &mut FrameQueue) {
        let begun = now.saturating_sub(self.begin);
        let mut step =
            StepState { due, begun, acknowledged: None, routes: 0, sent: None, error: None };
        let order = step.due.order.clone();
        step.error = check(&self.settings, &order).err().map(|error| error.to_string());
        let fails = step.error.is_some();
        let mut changes = RouteChanges::default();
        if let RouterOrder::Withdraw(part) | RouterOrder::Announce(part) = &order
            && !fails
        {
            let withdraw = matches!(order, RouterOrder::Withdraw(_));
            changes = self.steered.changes(&self.settings, part, withdraw);
        }
        step.routes = changes.routes;
        if !fails {
            self.schedule.reverse(&step.due, changes.routes);
        }
        let number = self.state.add_step(step);
        self.watched = Some((number, now));
        if fails {
            return;
        }
        self.open_step = self.open_step.or(number);
        self.change_routes(now, changes, queue);
        self.change_sessions(now, &order, queue);
        self.confirm(now);
    }

    /// The steps are acknowledged if the neighbors have acknowledged all octets.
    fn confirm(&mut self, now: Nanos) {
        if let Some(from) = self.open_step.filter(|_| self.speaker.is_acknowledged()) {
            self.open_step = None;
            self.state.acknowledge(from, now.saturating_sub(self.begin));
        }
    }

    fn change_routes(&mut self, now: Nanos, changes: RouteChanges, queue: &mut FrameQueue) {
        for (group, withdraw) in changes.wholes {
            let order = if withdraw { Order::Withdraw(group) } else { Order::Announce(group) };
            self.present[group] =
                if withdraw { [0; 2] } else { by_family(&self.settings.groups[group]) };
            self.with(now, queue, |speaker, queue| speaker.order(now, order, queue));
        }
        let is_same = |one: &RouteMove, next: &RouteMove| {
            (one.group, one.withdraw) == (next.group, next.withdraw)
        };
        for run in changes.moves.chunk_by(is_same) {
            let RouteMove { group, withdraw, .. } = run[0];
            for one in run {
                let present = &mut self.present[group][usize::from(one.prefix.address.is_ipv6())];
                *present = if withdraw { present.saturating_sub(1) } else { *present + 1 };
            }
            let kind = if withdraw { UpdateKind::Withdraw } else { UpdateKind::Announce };
            let prefixes = run.iter().map(|one| of_speaker(one.prefix)).collect();
            let order = Order::Routes(group, kind, prefixes);
            self.with(now, queue, |speaker, queue| speaker.order(now, order, queue));
        }
    }

    fn change_sessions(&mut self, now: Nanos, order: &RouterOrder, queue: &mut FrameQueue) {
        let of_peer: Box<dyn Fn(usize) -> Order> = match order {
            RouterOrder::Withdraw(_) | RouterOrder::Announce(_) => return,
            RouterOrder::Down { message, .. } => {
                let error = shutdown(message);
                Box::new(move |peer| Order::Stop(peer, error.clone()))
            }
            RouterOrder::Notify { code, subcode, data, .. } => {
                let error = Notification { code: *code, subcode: *subcode, data: data.clone() };
                Box::new(move |peer| Order::Stop(peer, error.clone()))
            }
            RouterOrder::Up { .. } => Box::new(Order::Start),
            RouterOrder::Restart => Box::new(|peer| Order::Restart(peer, RESTART)),
            RouterOrder::Refresh { .. } => Box::new(Order::Refresh),
            RouterOrder::Silent => {
                self.is_silent = true;
                self.excused_until = None;
                (0..self.excused.len()).for_each(|peer| self.excuse(peer));
                return;
            }
            RouterOrder::Talk => {
                self.is_silent = false;
                self.excused_until = Some(now + self.settings.recovery());
                return;
            }
        };
        let ends = !matches!(order, RouterOrder::Up { .. } | RouterOrder::Refresh { .. });
        let neighbor = order.neighbor();
        for number in 0..self.excused.len() {
            if neighbor.is_some_and(|address| self.speaker.peers()[number].remote != address) {
                continue;
            }
            if ends {
                self.excuse(number);
            }
            let order = of_peer(number);
            self.with(now, queue, |speaker, queue| speaker.order(now, order, queue));
        }
    }

    /// The next end of a session that is up is that of a step.
    fn excuse(&mut self, number: usize) {
        let session = &self.speaker.peers()[number].session;
        if session.state() == State::Established {
            let downs = session.counters().downs;
            self.excused[number] =
                Excused { ends: self.excused[number].of(downs), next: Some(downs) };
        }
    }

    // The state.

    /// Counters of frames, and the state.
    pub fn stats(&self) -> RouterStats {
        RouterStats { native: Some(Box::new(self.state())), ..self.stats.clone() }
    }

    fn state(&self) -> DaemonState {
        if self.stopped.is_some() {
            return self.state.clone();
        }
        let peers = self.speaker.peers();
        let is_up = |peer: &Peer| peer.session.state() == State::Established;
        let listed = peers.iter().enumerate();
        let listed = listed.filter(|(_, peer)| peers.len() <= LISTED || !is_up(peer));
        let listed: Vec<_> = listed.take(LISTED).collect();
        let first_up = |(number, peer): &(usize, &Peer)| {
            Some((self.name(*number, peer), peer.first_up?.saturating_sub(self.begin)))
        };
        let downs = peers.iter().zip(&self.excused).map(|(peer, excused)| {
            let downs = peer.session.counters().downs;
            downs - excused.of(downs)
        });
        DaemonState {
            protocols: listed.iter().map(|(number, peer)| self.protocol(*number, peer)).collect(),
            up_after: listed.iter().filter_map(first_up).collect(),
            downs: downs.sum(),
            groups: self.steered.counts(&self.settings),
            next_step: self.schedule.first().cloned(),
            sessions: Some(self.sums()),
            ..self.state.clone()
        }
    }

    /// `bgp1`; with several routers, also the address of the router.
    fn name(&self, number: usize, peer: &Peer) -> String {
        let neighbors = self.settings.bgp.as_ref().map_or(1, |bgp| bgp.neighbors.len().max(1));
        match self.copies.count {
            1 => format!("bgp{}", number + 1),
            _ => format!("bgp{}@{}", number % neighbors + 1, peer.local),
        }
    }

    fn protocol(&self, number: usize, peer: &Peer) -> ProtocolState {
        let Counters { sent, received, .. } = peer.session.counters();
        ProtocolState {
            name: self.name(number, peer),
            kind: "BGP".into(),
            state: peer.session.state().name().into(),
            is_up: peer.session.state() == State::Established,
            neighbor: peer.remote.to_string(),
            error: peer.session.last_error().map_or_else(String::new, error_text),
            imported: learnt(peer),
            exported: self.exported(peer),
            session: Some(SessionState {
                acknowledged_after: acknowledged_after(peer),
                sent: counts(sent),
                received: counts(received),
            }),
            neighbors: Vec::new(),
            lsps: [0; 2],
        }
    }

    fn sums(&self) -> SessionSums {
        let peers = self.speaker.peers();
        let mut sums = SessionSums {
            sessions: peers.len() as u64,
            no_destination: self.destinations.as_ref().map_or(0, |learnt| learnt.left_out),
            closed_windows: self.speaker.tcp().zero_windows_in,
            ..SessionSums::default()
        };
        let mut last_up = Some(Nanos::ZERO);
        for peer in peers {
            let Counters { sent, received, faults, .. } = peer.session.counters();
            sums.up += u64::from(peer.session.state() == State::Established);
            sums.ever_up += u64::from(peer.first_up.is_some());
            last_up = last_up.zip(peer.first_up).map(|(last, up)| last.max(up));
            sums.acknowledged_after = sums.acknowledged_after.max(acknowledged_after(peer));
            sums.imported += learnt(peer);
            sums.not_kept += peer.learnt.not_kept;
            sums.most_imported = sums.most_imported.max(learnt(peer));
            sums.exported += self.exported(peer);
            add(&mut sums.sent, counts(sent));
            add(&mut sums.received, counts(received));
            add_faults(&mut sums.faults, faults);
        }
        sums.all_up_after = last_up.map(|last| last.saturating_sub(self.begin));
        sums
    }

    /// Routes that a neighbor has from this side.
    fn exported(&self, peer: &Peer) -> u64 {
        let Some((_, agreed)) = peer.session.established() else { return 0 };
        let families = Family::ALL.into_iter().filter(|family| agreed.families[family.index()]);
        let of_family =
            |family: Family| self.present.iter().map(|of| of[family.index()]).sum::<u64>();
        let all = families.map(of_family).sum();
        match peer.fed_at {
            Some(_) => all,
            None => peer.announced.min(all),
        }
    }

    /// Learnt routes that are among the expected ones, and those that are not. `None`: none are
    /// expected, or not all learnt ones are kept.
    fn compare(&self) -> Option<(u64, u64)> {
        let peers = self.speaker.peers();
        let groups = self.expected.as_ref()?;
        if peers.iter().any(|peer| peer.learnt.not_kept > 0) {
            return None;
        }
        let prefixes = || groups.iter().flat_map(RouteGroup::prefixes).map(of_speaker);
        let mut expected: HashMap<_, bool> = prefixes().map(|prefix| (prefix, false)).collect();
        let mut extra = HashSet::new();
        for route in peers.iter().flat_map(|peer| peer.learnt.iter()) {
            match expected.get_mut(&route.prefix) {
                Some(is_learnt) => *is_learnt = true,
                None => _ = extra.insert(route.prefix),
            }
        }
        // A prefix of two groups is two of the announced routes.
        let found = prefixes().filter(|prefix| expected.get(prefix) == Some(&true)).count();
        Some((found as u64, extra.len() as u64))
    }
}

fn learnt(peer: &Peer) -> u64 {
    Family::ALL.into_iter().map(|family| peer.learnt.routes(family)).sum()
}

/// Time from Established until the neighbor had acknowledged all routes.
fn acknowledged_after(peer: &Peer) -> Option<Nanos> {
    Some(peer.fed_at?.saturating_sub(peer.session.established_at()?))
}

fn counts(of: &MessageCounters) -> MessageCounts {
    let MessageCounters { opens, updates, notifications, keepalives, refreshes } = *of;
    MessageCounts { opens, updates, notifications, keepalives, refreshes }
}

fn add(sum: &mut MessageCounts, more: MessageCounts) {
    sum.opens += more.opens;
    sum.updates += more.updates;
    sum.notifications += more.notifications;
    sum.keepalives += more.keepalives;
    sum.refreshes += more.refreshes;
}

fn add_faults(sum: &mut SessionFaults, more: &UpdateFaults) {
    sum.withdrawn += more.treated_as_withdrawn;
    sum.discarded += more.attributes_discarded;
    sum.other_families += more.other_families;
    for (reason, updates) in more.reasons() {
        let FaultReason { text, source, discards, .. } = *reason;
        let is_it = |of: &&mut FaultCount| (of.reason, of.discards) == (text, discards);
        match sum.reasons.iter_mut().find(is_it) {
            Some(known) => known.updates += updates,
            None => sum.reasons.push(FaultCount { reason: text, source, discards, updates }),
        }
    }
}

fn error_text(error: &LastError) -> String {
    match error {
        LastError::Sent(sent) => format!("Sent: {sent}"),
        LastError::Received(received) => format!("Received: {received}"),
        LastError::Tcp(reason) => {
            let reason = match reason {
                EndReason::Closed => "connection closed",
                EndReason::Reset => "connection reset",
                EndReason::Refused => "connection refused",
                EndReason::Unreachable => "neighbor unreachable",
                EndReason::NoPort => "no free port for the connection",
                EndReason::Timeout => "connection timed out",
                EndReason::Replaced => "replaced by a new connection of the neighbor",
            };
            format!("TCP: {reason}")
        }
    }
}

/// CEASE with a text (RFC 9003 section 2), which has its length before it.
fn shutdown(message: &str) -> Notification {
    let len = u8::try_from(message.len()).ok().filter(|len| *len > 0);
    let data = len.map(|len| [&[len], message.as_bytes()].concat());
    Notification { data: data.unwrap_or_default(), ..Notification::cease(cease::SHUTDOWN) }
}

// Settings of the speaker.

fn speaker_settings(
    settings: &RouterSettings,
    copies: Copies,
    mtu: u32,
    seed: u64,
) -> SpeakerSettings {
    SpeakerSettings {
        routers: (0..copies.count).map(|copy| router(settings, copies, copy, seed)).collect(),
        groups: settings.groups.iter().map(group).collect(),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        learnt: MOST_LEARNT,
        seed,
        ..SpeakerSettings::default()
    }
}

/// One router of several.
fn router(settings: &RouterSettings, copies: Copies, copy: u32, seed: u64) -> SpeakerRouter {
    let ipv4 = settings.ipv4.map(|(first, _)| Ipv4Addr::from_bits(first.to_bits() + copy));
    let ipv6 = settings.ipv6.map(|(first, _)| (first.to_bits() + u128::from(copy)).into());
    let peers = settings.bgp.iter().flat_map(|bgp| {
        let hold = bgp.hold.0 / Nanos::SECOND.0;
        let session = PeerSettings {
            asn: bgp.asn.saturating_add(copy * copies.asn_step),
            identifier: Ipv4Addr::from_bits(settings.router_id.to_bits().wrapping_add(copy)),
            hold: u16::try_from(hold).unwrap_or(u16::MAX),
            families: [ipv4.is_some(), ipv6.is_some()],
            restart: settings.graceful_restart.then_some(RESTART_TIME_S),
            ipv4,
            ipv6,
            ..PeerSettings::default()
        };
        bgp.neighbors.iter().enumerate().map(move |(number, neighbor)| SpeakerPeer {
            address: neighbor.address,
            session: PeerSettings {
                peer_asn: Some(neighbor.asn),
                seed: mix(seed, u64::from(copy) << 32 | number as u64),
                ..session
            },
        })
    });
    let [_, _, mac @ ..] = (bits(settings.mac) + u64::from(copy)).to_be_bytes();
    SpeakerRouter {
        mac: MacAddr(mac),
        addresses: ipv4.map(IpAddr::V4).into_iter().chain(ipv6.map(IpAddr::V6)).collect(),
        peers: peers.collect(),
    }
}

fn bits(mac: MacAddr) -> u64 {
    mac.0.iter().fold(0, |bits, octet| bits << 8 | u64::from(*octet))
}

fn of_speaker(prefix: Prefix) -> squall_bgp::Prefix {
    squall_bgp::Prefix { address: prefix.address, length: prefix.length }
}

/// Number of routes of each family.
fn by_family(group: &RouteGroup) -> [u64; 2] {
    let mut counts = [0; 2];
    for part in &group.prefixes {
        match part {
            Prefixes::Range(range) => {
                counts[usize::from(range.first.is_ipv6())] += u64::from(range.count);
            }
            Prefixes::List(_) | Prefixes::Mrt(_) => {
                let ipv6 = part.iter().filter(|prefix| prefix.address.is_ipv6()).count() as u64;
                counts[1] += ipv6;
                counts[0] += part.len() - ipv6;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests;
