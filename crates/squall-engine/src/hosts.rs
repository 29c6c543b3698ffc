//! Groups of hosts as a source: a worker starts them, runs their timers, and sends their frames.

use std::collections::VecDeque;

use squall_host::{FrameQueue, GroupStatistics, HostGroup};
use squall_plan::{Plan, SourceId};
use squall_port::{BATCH, PortFacts, SendError, Timestamps};
use squall_units::{Cut, FCS_LEN, Nanos, Picos};

use crate::{
    Clock, Counters, PortTx, Snapshot,
    clock::{Stalls, Watch},
    command::{Action, Command},
    sink::{Frames, Sink},
    source::{LATER, Member, Outlets, Rest, SLIP, Source, Turn, pass},
    supervisor::END_OF_TIME,
    transmit::{Blocked, LINK_DOWN},
};

/// Results of a group of hosts.
#[derive(Clone, Debug)]
pub struct HostStats {
    /// Number of the group in the plan.
    pub group: usize,
    pub statistics: GroupStatistics,
}

/// The groups of hosts of a worker.
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
    /// On virtual time: the current time.
    virtual_now: Nanos,
}

struct HostPort {
    port: usize,
    member: Member,
    groups: Vec<(usize, HostGroup)>,
    queue: FrameQueue,
    /// The lag of the port's traffic clock in this turn, and the traffic time.
    lag: Nanos,
    horizon: Nanos,
    /// Whether frames have receive time stamps. Otherwise a frame may have arrived at any time
    /// since the last poll of the port.
    stamped: bool,
    polled: [Nanos; 2],
    virtual_now: Option<Nanos>,
    /// Frames that an emulated delay ([`squall_port::fault`]) holds back: time, whether the
    /// checksum is partial, octets.
    held: VecDeque<(Nanos, bool, Vec<u8>)>,
    limit: usize,
    longest: usize,
    /// Frames in lent slots: length, and due time in real time. Those before `done` are sent.
    hand: Vec<(u32, Nanos)>,
    done: usize,
    blocked: Blocked,
    counters: PortTx,
    /// Received frames without a receive time stamp.
    uncertain: u64,
    /// Due time of the earliest frame that was owed at the start of the turn.
    owed: Option<u64>,
}

impl Hosts {
    pub fn new(clock: Clock, plan: &Plan) -> Self {
        Self {
            clock,
            ports: Vec::new(),
            alone: plan.only_hosts(),
            asks: false,
            end: Picos(u64::MAX),
            stopped: false,
            virtual_now: Nanos::ZERO,
        }
    }

    /// Adds the groups of a port that has an outlet on this worker.
    pub fn add(&mut self, plan: &Plan, port: usize, facts: &PortFacts, outlets: &mut Outlets) {
        let Some(member) = outlets.join(port) else { return };
        // Timers run before it is known which frames they will cause, so the turn as a whole is
        // paced.
        outlets.share(member);
        let begin = self.clock.instant(Picos(0));
        let groups: Vec<_> = plan
            .hosts_on(port)
            .map(|(number, of)| (number, HostGroup::new(of.settings.clone(), begin)))
            .collect();
        self.asks |= groups.iter().any(|(_, group)| !group.settings().only_answers());
        self.ports.push(HostPort {
            port,
            member,
            groups,
            queue: FrameQueue::default(),
            lag: Nanos::ZERO,
            horizon: Nanos(u64::MAX),
            stamped: facts.timestamps != Timestamps::None,
            polled: [Nanos::ZERO; 2],
            virtual_now: (self.clock == Clock::Virtual).then_some(Nanos::ZERO),
            held: VecDeque::new(),
            limit: facts.batch.clamp(1, BATCH),
            longest: plan.ports[port].max_frame as usize,
            hand: Vec::with_capacity(BATCH),
            done: 0,
            blocked: Blocked::default(),
            counters: PortTx { port, source: SourceId::HOSTS, ..PortTx::default() },
            uncertain: 0,
            owed: None,
        });
    }

    fn now(&self, watch: &mut Watch) -> Nanos {
        if self.clock == Clock::Virtual { self.virtual_now } else { watch.now() }
    }

    fn stop(&mut self, watch: &mut Watch) {
        let now = self.now(watch);
        self.stopped = true;
        for port in &mut self.ports {
            let now = port.traffic(now);
            port.groups.iter_mut().for_each(|(_, group)| group.stop(now));
        }
    }

    /// Whether each host that asks for something has a result; after the stop, whether all is sent.
    fn is_settled(&self) -> bool {
        self.ports.iter().all(|port| {
            let settled = port.groups.iter().all(|(_, group)| group.is_settled());
            port.counters.error.is_some() || (settled && port.is_idle())
        })
    }

    fn has_end(&self) -> bool {
        self.end < END_OF_TIME
    }

    /// When the next timer is due, on the engine's clock.
    fn next(&self, outlets: Option<&Outlets>) -> Option<Nanos> {
        let due = |port: &HostPort| {
            let groups = port.groups.iter().filter_map(|(_, group)| group.next_due());
            let own = groups.min().filter(|_| port.has_room());
            let own = own.map(|due| match outlets {
                Some(outlets) if port.lag > Nanos::ZERO => {
                    outlets.real_due(port.member, self.clock, due)
                }
                _ => due,
            });
            own.into_iter().chain(port.held.front().map(|held| held.0)).min()
        };
        let next = self.ports.iter().filter_map(due).min();
        if self.stopped || !self.has_end() {
            return next;
        }
        let end = self.clock.instant(self.end);
        Some(next.map_or(end, |next| next.min(end)))
    }

    fn is_full(&self) -> bool {
        self.ports.iter().any(|port| !port.has_room() && port.counters.error.is_none())
    }
}

impl Source for Hosts {
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool {
        self.end = turn.budget.end;
        let now = self.now(turn.watch);
        let over = self.clock.since_start(now) >= self.end;
        // A run of hosts alone ends when each has a result.
        let finished = self.alone && self.asks && !self.has_end() && self.is_settled();
        if !self.stopped && (over || finished) {
            self.stop(turn.watch);
        }
        let mut moved = false;
        for port in &mut self.ports {
            // Hosts that became due since the turn began wait for the next turn, because the overdue
            // times of this one do not include them.
            let traffic = port.traffic(now).min(port.horizon);
            if port.has_room() {
                for (_, group) in &mut port.groups {
                    moved |= group.advance(traffic, &mut port.queue);
                }
            }
            moved |= port.send_all(now, turn);
        }
        moved
    }

    fn owe(&mut self, outlets: &mut Outlets) {
        for port in &mut self.ports {
            let due = port.groups.iter().filter_map(|(_, group)| group.owed()).min();
            let due = due.filter(|_| port.has_room());
            port.owed = due.map(|due| self.clock.since_start(due).0);
            if let Some(due) = port.owed {
                outlets.owe(port.member, due);
            }
        }
    }

    fn begin_turn(&mut self, now: Nanos, outlets: &Outlets) {
        let at = self.clock.since_start(now).0;
        for port in &mut self.ports {
            let traffic = outlets.of(port.member).traffic(at);
            port.lag = Picos(at - traffic.min(at)).as_nanos();
            port.horizon = port.traffic(now) + SLIP;
        }
    }

    fn next_due(&mut self, outlets: &Outlets, _end: Picos) -> Option<Picos> {
        let real = (self.clock != Clock::Virtual).then_some(outlets);
        self.next(real).map(|next| self.clock.since_start(next))
    }

    fn is_done(&self) -> bool {
        let lost = |port: &HostPort| port.counters.error.is_some();
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
        if command.part.is_none() && matches!(command.action, Action::Stop) {
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
        for port in &mut self.ports {
            port.drop_hand("port_full", outlets);
            if let Err(error) = outlets.of_mut(port.member).finish() {
                port.counters.error.get_or_insert(error.to_string());
            }
        }
    }

    fn snapshot(&self, full: bool, stalls: Stalls, into: &mut Snapshot) {
        for port in &self.ports {
            let mut counters = PortTx { stalls, ..port.counters.clone() };
            if port.queue.dropped() > 0 {
                counters.not_sent.insert("queue_full", port.queue.dropped());
            }
            into.tx.push(counters);
            into.hosts.extend(
                port.groups.iter().map(|(group, of)| HostStats {
                    group: *group,
                    statistics: of.statistics(full),
                }),
            );
        }
    }

    fn counters(&self, into: &mut Counters) {
        into.tx.extend(self.ports.iter().map(|port| port.counters.sent()));
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
            if frame.outgoing || *claim {
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
                self.uncertain += u64::from(!self.stamped);
                self.traffic(time)
            }
        };
        let Self { groups, queue, .. } = self;
        groups.iter_mut().fold(false, |any, (_, group)| group.receive(at, octets, queue) | any)
    }

    /// Whether no frame waits for room in the port.
    fn has_room(&self) -> bool {
        self.done == self.hand.len() && self.counters.error.is_none()
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.done == self.hand.len()
    }

    /// Sends frames that wait. Returns whether any left.
    fn send_all(&mut self, now: Nanos, turn: &mut Turn<'_>) -> bool {
        let mut moved = false;
        loop {
            if self.counters.error.is_some() {
                return moved;
            }
            if self.done < self.hand.len() && !self.send(now, turn) {
                return moved;
            }
            moved |= !self.hand.is_empty();
            if self.done < self.hand.len() {
                continue;
            }
            self.hand.clear();
            self.done = 0;
            if self.queue.is_empty() {
                return moved;
            }
            let mut batch = turn.outlets.lend(self.member, self.limit.min(self.queue.len()));
            if batch.is_empty() {
                self.blocked.note(now, true, &mut self.counters);
                return moved;
            }
            while self.hand.len() < batch.len()
                && let Some((frame, due)) = self.queue.first()
            {
                if frame.len() <= self.longest {
                    let at = self.hand.len();
                    batch.frame(at, frame.len(), now).copy_from_slice(frame);
                    let meta = &mut batch.meta[at];
                    // Reset, because a reused slot has the metadata of its previous frame.
                    (meta.owner, meta.mark, meta.cut) = (0, 0, Cut::WHOLE);
                    self.hand.push((frame.len() as u32, due + self.lag));
                } else {
                    *self.counters.not_sent.entry("too_long").or_default() += 1;
                }
                self.queue.pop();
            }
        }
    }

    /// Sends the frames in slots. Returns whether any left, or was given up.
    fn send(&mut self, now: Nanos, turn: &mut Turn<'_>) -> bool {
        if let Some(error) = turn.outlets.of(self.member).lost() {
            self.counters.error = Some(error.to_string());
            self.drop_hand("port_lost", turn.outlets);
            return false;
        }
        if !turn.outlets.of(self.member).is_up() {
            // Frames are lost as for any host, and hosts repeat their requests.
            self.drop_hand(LINK_DOWN, turn.outlets);
            return true;
        }
        let wanted = self.hand.len() - self.done;
        match turn.outlets.send(self.member, wanted) {
            Ok(sent) => {
                self.blocked.note(now, sent < wanted, &mut self.counters);
                if sent > 0 {
                    self.credit(sent, turn);
                }
                self.done += sent;
                sent > 0
            }
            Err(SendError::Frame(reason)) => {
                self.counters.errors += 1;
                *self.counters.not_sent.entry(reason).or_default() += 1;
                self.done += 1;
                true
            }
            Err(SendError::Port(error)) => {
                self.counters.error = Some(error.to_string());
                self.drop_hand("port_lost", turn.outlets);
                false
            }
        }
    }

    /// Counts the next `sent` frames, which the port has taken.
    fn credit(&mut self, sent: usize, turn: &mut Turn<'_>) {
        // A new clock reading, because the thread may have been preempted since the turn began.
        let at = turn.watch.now();
        let outlet = turn.outlets.of_mut(self.member);
        let audited = turn.clock != Clock::Virtual;
        let (mut octets, mut longest) = (0, 0);
        for (len, due) in &self.hand[self.done..self.done + sent] {
            let size = u64::from(len + FCS_LEN);
            if audited {
                outlet.audit_due(turn.clock.since_start((*due).min(at)).0, 1, size);
            }
            octets += size;
            longest = longest.max(len + FCS_LEN);
        }
        self.counters.packets += sent as u64;
        self.counters.octets += octets;
        self.counters.last = if audited { at } else { self.virtual_now.unwrap_or(at) };
        if audited {
            let at = turn.clock.since_start(at).0;
            outlet.audit_left(at, sent as u64, octets, longest);
            if let Some(due) = self.owed {
                outlet.left(at, outlet.lag(at), due);
            }
            if self.uncertain > 0 {
                outlet.audit_uncertain(std::mem::take(&mut self.uncertain));
            }
        }
    }

    fn drop_hand(&mut self, reason: &'static str, outlets: &mut Outlets) {
        outlets.release(self.member);
        let frames = (self.hand.len() - self.done) as u64;
        if frames > 0 {
            *self.counters.not_sent.entry(reason).or_default() += frames;
        }
        self.hand.clear();
        self.done = 0;
    }
}
