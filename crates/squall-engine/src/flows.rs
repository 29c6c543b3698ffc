//! Flows: a worker drives the sides of a load that its ports carry.
//!
//! A turn takes all that has come, lets the timers run, begins the flows that are due, and sends
//! what there is to say, straight into the port's slots. Receiving comes first: what has begun is
//! brought to its end before more begins, so that a load of more than the machine carries costs
//! arrivals (they are counted as late), and no throughput.

use std::{
    collections::VecDeque,
    num::NonZeroU64,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    thread::set_current_timer_slack,
};
use squall_flows::{
    FrameOutput, Load, LoadError, Near, Network, Role, Side, SideSettings, Statistics, Wrap,
};
use squall_measure::Receiver;
use squall_port::{BATCH, Hosts, Link, LinkState, PortFacts, RxQueue, SendError, TxBatch, TxQueue};
use squall_units::{Cut, FCS_LEN, Nanos, Picos, Segmentation};

use crate::{
    Clock, Control, PortRx, PortTx,
    clock::Watch,
    transmit::{Blocked, LINK_DOWN, OVERTIME},
};

/// A load, and the ports that carry its sides.
#[derive(Clone, Debug)]
pub struct Flows {
    pub load: Load,
    pub sides: Vec<FlowSide>,
}

/// What a port carries of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSide {
    /// In the plan, which lists it among [`squall_plan::Plan::flows`].
    pub port: usize,
    pub role: Role,
    pub network: Network,
    /// Flows that there is room for at once on each worker, those in TIME-WAIT included:
    /// [`squall_flows::FLOWS`].
    pub flows: u32,
}

/// What became of the flows of one port on one worker.
#[derive(Clone, Debug)]
pub struct FlowStats {
    pub port: usize,
    pub statistics: Statistics,
}

impl Flows {
    /// The port whose side cannot be, and why.
    pub(crate) fn check(&self) -> Result<(), (usize, LoadError)> {
        for side in &self.sides {
            let settings = SideSettings { role: side.role, flows: 1, ..SideSettings::default() };
            Side::new(&self.load, &side.network, settings).map_err(|error| (side.port, error))?;
        }
        Ok(())
    }

    /// Whether somebody begins flows, so that the run ends when all have.
    fn has_clients(&self) -> bool {
        self.sides.iter().any(|side| side.role != Role::Servers)
    }
}

/// The longest super-frame that a port is given to cut: more segments at once are worth little, and
/// wait in queues.
const SUPER_PACKET: u32 = 32 << 10;

impl FlowSide {
    /// The longest frame that `facts` is to be opened for, octets without FCS
    /// ([`squall_plan::FlowPort::max_frame`]).
    pub fn max_frame(&self, facts: &PortFacts) -> u32 {
        self.network.longest_frame().max(self.super_packet(facts) + ETHERNET_HEADER)
    }

    /// Whose packets the side takes.
    pub(crate) fn hosts(&self, load: &Load) -> Hosts {
        let ours = |template: &squall_flows::Template| {
            let clients = (self.role != Role::Servers).then(|| &load.clients[template.clients]);
            let servers = (self.role != Role::Clients).then(|| &load.servers[template.servers]);
            clients
                .into_iter()
                .chain(servers)
                .flat_map(|pool| &pool.ranges)
                .map(|range| range.first()..=range.last())
        };
        // A tunnel's packets are to our end of it.
        let ends = self.network.wraps.iter().filter_map(|wrap| match *wrap {
            Wrap::Gre { local, .. } | Wrap::Vxlan { local, .. } | Wrap::GtpU { local, .. } => {
                Some(local..=local)
            }
            Wrap::Vlan { .. } | Wrap::Mpls { .. } => None,
        });
        Hosts {
            addresses: load.templates.iter().flat_map(ours).chain(ends).collect(),
            labels: self.network.wraps.iter().any(|wrap| matches!(wrap, Wrap::Mpls { .. })),
        }
    }

    /// The longest packet that the port cuts; 0: it cuts none.
    fn super_packet(&self, facts: &PortFacts) -> u32 {
        match facts.segmentation {
            Segmentation::Port(offload) if self.network.wraps.is_empty() && offload.tcp > 1 => {
                let payload = u32::from(self.network.mtu).saturating_sub(60);
                let cut = offload.tcp.saturating_mul(payload).saturating_add(40);
                cut.min(offload.max_frame.saturating_sub(ETHERNET_HEADER)).min(SUPER_PACKET)
            }
            _ => 0,
        }
    }
}

const ETHERNET_HEADER: u32 = 14;

/// A worker's share of the flows.
pub(crate) struct Player {
    ports: Vec<PlayerPort>,
    clock: Clock,
    /// On virtual time: now.
    virtual_now: Nanos,
    /// Flows begin somewhere in this run.
    has_clients: bool,
    stopped: bool,
    pace: Pace,
}

/// How often a worker lately woke for something.
#[derive(Default)]
struct Pace {
    since: Nanos,
    wakes: u32,
    often: bool,
    /// Since the last rest.
    moved: bool,
}

impl Pace {
    /// Whether a worker with so many open flows is to let frames gather, before it looks again: a
    /// waking costs as much as several frames. A device's interrupts are moderated the same way.
    /// Few flows would only wait for each other, and where little comes each frame is looked at
    /// when it comes.
    fn gathers(&mut self, now: Nanos, flows: impl FnOnce() -> usize) -> bool {
        if !std::mem::take(&mut self.moved) {
            return false;
        }
        self.wakes += 1;
        if now.saturating_sub(self.since) >= PACE {
            let often = now.saturating_sub(self.since) < PACE + PACE && self.wakes >= OFTEN;
            *self = Self { since: now, wakes: 0, often, moved: false };
        }
        self.often && flows() >= MANY
    }
}

/// Over such times wakings are counted; so many are often: one in 100 us.
const PACE: Nanos = Nanos(2_000_000);
const OFTEN: u32 = 20;
/// Flows of which several are heard of while frames gather.
const MANY: usize = 32;
/// So long frames gather.
const GATHER: Nanos = Nanos(50_000);

struct PlayerPort {
    port: usize,
    side: Side,
    clients: bool,
    out: Out,
    rx: Vec<In>,
}

struct Out {
    queue: Box<dyn TxQueue>,
    link: Option<Arc<Link>>,
    limit: usize,
    longest: usize,
    /// Frames in lent slots: length and cut. Those before `done` are sent.
    hand: [(u32, Cut); BATCH],
    filled: usize,
    done: usize,
    blocked: Blocked,
    counters: PortTx,
}

struct In {
    queue: Box<dyn RxQueue>,
    seen: Receiver,
    given: u64,
    error: Option<String>,
    /// Frames that are said to come later ([`squall_port::fault`]: a delay).
    held: VecDeque<(Nanos, Cut, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

/// Flows that begin in a turn at most: what they say is received again while it is in the cache.
const BEGIN: usize = 32;
/// Batches that are received in a turn at most.
const RECEIVE: usize = 256;
/// A frame that is stamped as later than this is held until then; clocks of two threads differ by
/// less.
const LATER: Nanos = Nanos(100_000);
/// So near an instant it is waited for without sleep: who wakes for it is awake by then, with
/// timers as exact as [`SLACK`] makes them.
const NEAR: Nanos = Nanos(15_000);
/// By which the kernel may put off a worker's wakings, to have several at once; 50 us unless said.
const SLACK: NonZeroU64 = NonZeroU64::new(1000).unwrap();
/// Longest sleep where no port can wake us.
const NAP: Nanos = Nanos(100_000);
/// And where one can.
const SLEEP: Nanos = Nanos(50_000_000);
/// On virtual time, where a port is full.
const TRY_AGAIN: Nanos = Nanos(1000);

impl Player {
    /// On the worker's thread.
    pub fn new(clock: Clock, flows: &Flows) -> Self {
        if clock != Clock::Virtual {
            // Without it, flows begin some 50 us later.
            let _ = set_current_timer_slack(Some(SLACK));
        }
        Self {
            ports: Vec::new(),
            clock,
            virtual_now: Nanos::ZERO,
            has_clients: flows.has_clients(),
            stopped: false,
            pace: Pace::default(),
        }
    }

    /// # Panics
    /// If the flows have no side for the port, or one that [`Flows::check`] would refuse.
    pub fn add(
        &mut self,
        flows: &Flows,
        port: usize,
        facts: &PortFacts,
        (tx, link): (Box<dyn TxQueue>, Option<Arc<Link>>),
        rx: Vec<Box<dyn RxQueue>>,
        worker: (u32, u32),
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
            start,
            flows: of.flows,
            super_packet: of.super_packet(facts) as u16,
            // The kernel hands frames of this host over without checksums.
            partial_checksums: facts.kind.starts_with("af_") || facts.kind.starts_with("xdp"),
            ..SideSettings::default()
        };
        let side =
            Side::new(&flows.load, &of.network, settings).expect("the flows were checked before");
        let longest = of.max_frame(facts).min(facts.max_slot()) as usize;
        let into = |queue| In {
            queue,
            seen: Receiver::default(),
            given: 0,
            error: None,
            held: VecDeque::new(),
            spare: Vec::new(),
        };
        self.ports.push(PlayerPort {
            port,
            side,
            clients: of.role != Role::Servers,
            out: Out {
                queue: tx,
                link,
                limit: facts.batch.clamp(1, BATCH),
                longest,
                hand: [(0, Cut::WHOLE); BATCH],
                filled: 0,
                done: 0,
                blocked: Blocked::default(),
                counters: PortTx { port, ..PortTx::default() },
            },
            rx: rx.into_iter().map(into).collect(),
        });
    }

    fn now(&self, watch: &mut Watch) -> Nanos {
        if self.clock == Clock::Virtual { self.virtual_now } else { watch.now() }
    }

    /// One round; whether anything moved. No flow begins behind `end`.
    pub fn turn(&mut self, watch: &mut Watch, end: Picos) -> bool {
        let mut moved = false;
        let now = self.now(watch);
        if !self.stopped && self.clock.since_start(now) >= end && self.is_over(now, end) {
            let until = self.clock.instant(end);
            self.ports.iter_mut().for_each(|port| port.side.give_up_before(until));
            self.stop(watch);
        }
        for i in 0..self.ports.len() {
            let now = self.now(watch);
            let port = &mut self.ports[i];
            for rx in &mut port.rx {
                moved |= rx.turn(now, &mut port.side);
            }
            port.side.advance(now);
            let room = port.out.has_room();
            // What has come goes first.
            let begun = if room { port.side.begin(now, BEGIN) } else { 0 };
            moved |= begun > 0;
            moved |= port.out.turn(now, &mut port.side, watch);
        }
        self.pace.moved |= moved;
        moved
    }

    /// Whether no flow may begin any more: what was due before `end` and lags behind has some time.
    fn is_over(&self, now: Nanos, end: Picos) -> bool {
        let lag = self.ports.iter().map(|port| port.side.lag()).max().unwrap_or_default();
        let late = Picos::from(lag).0.min(OVERTIME);
        self.clock.since_start(now).0 >= end.0.saturating_add(late)
    }

    /// Nothing is left to be begun; of servers alone, when they were told to stop.
    pub fn is_done(&self) -> bool {
        let over = |port: &PlayerPort| port.side.is_over() || port.out.counters.error.is_some();
        match self.has_clients {
            // Servers go on for the clients' sake, wherever these are.
            true => self.ports.iter().filter(|port| port.clients).all(over),
            false => self.ports.iter().all(over),
        }
    }

    pub fn obey(&mut self, control: &Control, watch: &mut Watch) {
        let now = self.now(watch);
        let mut each =
            |act: &dyn Fn(&mut Side)| self.ports.iter_mut().for_each(|port| act(&mut port.side));
        match control {
            Control::Pause(None) => each(&|side| side.pause(now, None)),
            Control::Resume(None) => each(&|side| side.resume(now, None)),
            Control::PauseTemplate(template) => {
                each(&|side| side.pause(now, Some(*template as usize)))
            }
            Control::ResumeTemplate(template) => {
                each(&|side| side.resume(now, Some(*template as usize)))
            }
            Control::Load(load) => each(&|side| side.change(now, load)),
            Control::Stop => self.stop(watch),
            _ => {}
        }
    }

    fn stop(&mut self, watch: &mut Watch) {
        let now = self.now(watch);
        self.stopped = true;
        // Servers alone do not wait for clients who may never end.
        for port in self.ports.iter_mut().filter(|port| port.clients || !self.has_clients) {
            port.side.stop(now);
        }
    }

    /// Waits for what is next; whether the bell was rung.
    pub fn rest(&mut self, watch: &mut Watch, bell: &OwnedFd, end: Picos) -> bool {
        let due = |port: &PlayerPort| {
            let held = port.rx.iter().filter_map(|rx| Some(rx.held.front()?.0));
            held.chain(port.side.next_due().filter(|_| port.out.has_room())).min()
        };
        let mut next = self.ports.iter().filter_map(due).min();
        if !self.stopped {
            let end = self.clock.instant(Picos(end.0.min(u64::MAX / 2)));
            next = Some(next.map_or(end, |next| next.min(end)));
        }
        let full = self.ports.iter().any(|port| port.out.is_full());
        if self.clock == Clock::Virtual {
            match next {
                _ if full => self.virtual_now = self.virtual_now + TRY_AGAIN,
                Some(next) if !self.is_done() => {
                    self.virtual_now = next.max(self.virtual_now + Nanos(1))
                }
                _ => std::thread::yield_now(),
            }
            return false;
        }
        let now = watch.now();
        let left = next.map_or(SLEEP, |next| next.saturating_sub(now)).min(SLEEP);
        if left <= NEAR {
            std::hint::spin_loop();
            return false;
        }
        if self.pace.gathers(now, || self.ports.iter().map(|port| port.side.active()).sum()) {
            nap(watch, Nanos(left.0 - NEAR.0 / 2).min(GATHER));
            return false;
        }
        let mut descriptors = Vec::with_capacity(self.ports.len() + 1);
        let told = self
            .ports
            .iter()
            .flat_map(|port| &port.rx)
            .all(|rx| rx.queue.poll_on(&mut descriptors));
        if !told || full {
            nap(watch, Nanos(left.0 - NEAR.0 / 2).min(NAP));
            return false;
        }
        descriptors.push(bell.as_fd());
        let mut waits: Vec<_> =
            descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let wait = Timespec { tv_sec: 0, tv_nsec: (left.0 - NEAR.0 / 2).min(999_999_999) as i64 };
        watch.plan_rest(Nanos(wait.tv_nsec as u64));
        // An interrupted wait is no harm.
        let _ = poll(&mut waits, Some(&wait));
        waits.last().is_some_and(|bell| !bell.revents().is_empty())
    }

    /// The end: what is still open is aborted, and what there is to say about it is said.
    pub fn close(&mut self, watch: &mut Watch) {
        for _ in 0..LAST_TURNS {
            let now = self.now(watch);
            self.ports.iter_mut().for_each(|port| port.side.abort(now));
            self.turn(watch, Picos(u64::MAX));
            let over = |port: &PlayerPort| port.side.is_over() || port.out.counters.error.is_some();
            if self.ports.iter().all(over) {
                break;
            }
        }
        for port in &mut self.ports {
            port.out.close();
            port.rx.iter_mut().for_each(|rx| _ = rx.queue.stop());
        }
    }

    pub fn tx(&self) -> impl Iterator<Item = PortTx> + '_ {
        self.counters().cloned()
    }

    pub fn counters(&self) -> impl Iterator<Item = &PortTx> {
        self.ports.iter().map(|port| &port.out.counters)
    }

    /// Port, and what one of its queues has seen.
    pub fn seen(&self) -> impl Iterator<Item = (usize, &Receiver)> {
        self.ports.iter().flat_map(|port| port.rx.iter().map(|rx| (port.port, &rx.seen)))
    }

    pub fn rx(&mut self) -> impl Iterator<Item = PortRx> + '_ {
        self.ports.iter_mut().flat_map(|port| {
            let number = port.port;
            port.rx.iter_mut().map(move |rx| PortRx {
                port: number,
                seen: rx.seen.clone(),
                received: rx.queue.received(),
                given: rx.given,
                filtered: 0,
                drops: rx.queue.drops(),
                error: rx.error.clone(),
            })
        })
    }

    pub fn statistics(&self, full: bool) -> impl Iterator<Item = FlowStats> + '_ {
        self.ports
            .iter()
            .map(move |port| FlowStats { port: port.port, statistics: port.side.statistics(full) })
    }
}

fn nap(watch: &mut Watch, time: Nanos) {
    watch.plan_rest(time);
    std::thread::sleep(Duration::from_nanos(time.0));
}

/// Rounds at the end, in each of which a thousand flows are aborted.
const LAST_TURNS: usize = 100_000;

impl In {
    /// Hands over what has come; whether anything has.
    #[inline]
    fn turn(&mut self, now: Nanos, side: &mut Side) -> bool {
        if self.error.is_some() {
            return false;
        }
        let mut any = false;
        while self.held.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, cut, octets)) = self.held.pop_front() else { break };
            side.receive(now, &octets, cut, Near::default());
            self.spare.push(octets);
            any = true;
        }
        for _ in 0..RECEIVE {
            let batch = match self.queue.receive() {
                Ok(batch) if batch.frames.is_empty() => break,
                Ok(batch) => batch,
                Err(error) => {
                    self.error = Some(error.to_string());
                    break;
                }
            };
            any = true;
            self.given += batch.frames.len() as u64;
            let mut near = [Near::default(); BATCH];
            side.approach(batch.iter().map(|(octets, _)| octets), &mut near);
            // A batch may be longer.
            let near = near.into_iter().chain(std::iter::repeat(Near::default()));
            for ((octets, frame), near) in batch.iter().zip(near) {
                let segments = u64::from(frame.cut.segments(frame.wire_len));
                self.seen.packets += segments;
                self.seen.octets += frame.cut.octets(frame.wire_len);
                if !frame.cut.is_whole() {
                    self.seen.super_frames += 1;
                    self.seen.segments += segments;
                }
                if frame.outgoing {
                    continue;
                }
                if frame.time > now + LATER || !self.held.is_empty() {
                    let mut copy = self.spare.pop().unwrap_or_default();
                    copy.clear();
                    copy.extend_from_slice(octets);
                    self.held.push_back((frame.time, frame.cut, copy));
                } else {
                    side.receive(now, octets, frame.cut, near);
                }
            }
        }
        any
    }
}

impl Out {
    /// Nothing waits for the port.
    #[inline]
    fn has_room(&self) -> bool {
        self.done == self.filled && self.counters.error.is_none()
    }

    /// Frames wait for the port.
    fn is_full(&self) -> bool {
        self.done < self.filled && self.counters.error.is_none()
    }

    /// Sends what waits in slots, then what the side has to say; whether anything moved.
    #[inline]
    fn turn(&mut self, now: Nanos, side: &mut Side, watch: &mut Watch) -> bool {
        let mut moved = false;
        if self.counters.error.is_some() {
            return false;
        }
        if self.link.as_ref().is_some_and(|link| link.state() == LinkState::Lost) {
            return self.lose_what_waits(now);
        }
        if self.done < self.filled {
            moved |= self.send(now, watch);
        }
        while self.has_room() && side.has_output() {
            let batch = self.queue.lend(self.limit);
            if batch.is_empty() {
                self.blocked.note(now, true, &mut self.counters);
                break;
            }
            let mut room =
                Room { batch, hand: &mut self.hand, filled: 0, now, longest: self.longest };
            side.transmit(now, &mut room);
            (self.filled, self.done) = (room.filled, 0);
            if self.filled == 0 {
                break;
            }
            moved |= self.send(now, watch);
        }
        moved
    }

    fn send(&mut self, now: Nanos, watch: &mut Watch) -> bool {
        if self.link.as_ref().is_some_and(|link| !link.is_up()) {
            return self.lose_what_waits(now);
        }
        let wanted = self.filled - self.done;
        match self.queue.send(wanted) {
            Ok(sent) => {
                self.blocked.note(now, sent < wanted, &mut self.counters);
                for (len, cut) in &self.hand[self.done..self.done + sent] {
                    let segments = u64::from(cut.segments(*len));
                    self.counters.packets += segments;
                    self.counters.octets +=
                        if cut.is_whole() { u64::from(len + FCS_LEN) } else { cut.octets(*len) };
                    if !cut.is_whole() {
                        self.counters.super_frames += 1;
                        self.counters.segments += segments;
                    }
                }
                self.done += sent;
                if sent > 0 {
                    self.counters.last = now.max(watch.last());
                }
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
                self.drop_hand("port_lost");
                false
            }
        }
    }

    /// The link is down: frames are lost as those of any host, whose stack sends again what
    /// matters.
    #[cold]
    fn lose_what_waits(&mut self, now: Nanos) -> bool {
        self.blocked.note(now, false, &mut self.counters);
        if let Some(link) = self.link.as_ref().filter(|link| link.state() == LinkState::Lost) {
            self.counters.error = Some(link.error().to_string());
            self.drop_hand("port_lost");
            return false;
        }
        self.drop_hand(LINK_DOWN);
        true
    }

    fn drop_hand(&mut self, reason: &'static str) {
        let frames: u64 = self.hand[self.done..self.filled]
            .iter()
            .map(|(len, cut)| u64::from(cut.segments(*len)))
            .sum();
        if frames > 0 {
            *self.counters.not_sent.entry(reason).or_default() += frames;
        }
        self.done = self.filled;
    }

    fn close(&mut self) {
        self.drop_hand("port_full");
        if let Err(error) = self.queue.finish() {
            self.counters.error.get_or_insert(error.to_string());
        }
    }
}

/// Slots that a side fills.
struct Room<'a> {
    batch: TxBatch<'a>,
    hand: &'a mut [(u32, Cut); BATCH],
    filled: usize,
    now: Nanos,
    longest: usize,
}

impl FrameOutput for Room<'_> {
    #[inline]
    fn frame(&mut self, len: usize, cut: Cut) -> Option<&mut [u8]> {
        let at = self.filled;
        if at == self.batch.len() {
            return None;
        }
        self.filled += 1;
        self.hand[at] = (len as u32, cut);
        self.batch.frame(at, len, self.now);
        let meta = &mut self.batch.meta[at];
        // What was there before is gone.
        (meta.owner, meta.mark, meta.cut) = (0, 0, cut);
        let start = at * self.batch.stride;
        Some(&mut self.batch.base[start..][..len])
    }

    fn longest(&self) -> usize {
        self.longest
    }
}

#[cfg(test)]
mod tests;
