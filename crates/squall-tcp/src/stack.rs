//! The stack: takes packets and the time, returns packets and events.

use squall_units::{Nanos, be16};
use squall_wire::tcp_flags::SYN;

use crate::{
    Application, ClassId, ConnectError, Counters, Event, FlowId, FlowKind, Output, Reason,
    Settings, Socket, TunableError, Tunables, Tuple, UnmatchedCounters,
    addresses::{Packed, WHOLE},
    arrives::stamp,
    core::{Core, Unsettled},
    flow::{Bits, State},
    hash,
    packet::{
        Addresses, ICMP, ICMP6, IPV4, IPV6, Ip, Key, Reject, TCP, UDP, UDP_HEADER, ip_len,
        usual_key,
    },
    rest::Place,
    wheel::ticks,
};

/// The flows of one worker, and the application that serves them all.
pub struct Stack<A: Application> {
    pub(crate) app: A,
    pub(crate) core: Core<A::State>,
}

/// Table size up to which prefetching does not pay, octets: half of a 256 KiB second-level cache.
const CACHE_SIZE: usize = 1 << 17;

/// Records up to which it does not pay either: 192 KiB.
const FEW: usize = 1 << 11;

impl<A: Application> Stack<A> {
    /// # Panics
    /// If the application's state is longer than 32 octets, or `settings` asks for more than 2^30
    /// flows.
    pub fn new(settings: Settings, app: A) -> Self {
        // Records are sized for it: 76 octets and this state.
        assert!(size_of::<A::State>() <= 32, "an application keeps at most 32 octets a flow");
        assert!(settings.flows <= 1 << 30, "at most 2^30 flows");
        let mut core = Core::new(settings);
        core.parts_of = (A::divide, A::join);
        Self { app, core }
    }

    pub fn add_class(&mut self, tunables: Tunables) -> Result<ClassId, TunableError> {
        tunables.check()?;
        assert!(self.core.classes.len() < usize::from(u16::MAX), "at most 65,535 classes");
        self.core.add_class(tunables);
        Ok(ClassId(self.core.classes.len() as u16 - 1))
    }

    /// Opens a flow. For UDP the application gets [`Event::Established`] before this returns.
    pub fn connect(
        &mut self,
        now: Nanos,
        class: ClassId,
        tuple: Tuple,
        state: A::State,
    ) -> Result<FlowId, ConnectError> {
        let key = Key::of(&tuple).ok_or(ConnectError::Family)?;
        let hash = self.core.hash(&key);
        if self.core.find(hash, &key).is_some() {
            return Err(ConnectError::InUse);
        }
        let due = std::mem::take(&mut self.core.connect_due);
        self.core.caused_at(if due == Nanos::ZERO { now } else { due });
        let tcp_state = if key.udp { State::Udp } else { State::SynSent };
        let Some(flow) = self.core.allocate(class, &key, hash, tcp_state, state) else {
            self.core.strays.table_full += 1;
            return Err(ConnectError::Full);
        };
        let (f, class) = self.core.parts(flow);
        class.counters.attempts += 1;
        let id = FlowId(f.number);
        match tuple.kind {
            FlowKind::Tcp => self.open(now, flow, &key),
            FlowKind::Udp => {
                self.begin_udp(now, flow);
                self.settle(now, flow);
            }
        }
        Ok(id)
    }

    /// Gives an open UDP flow other ends of the same IP version, as after a change of its host's
    /// address or port. Queued datagrams use them, too.
    ///
    /// # Errors
    /// [`ConnectError::InUse`], also if the flow is not open or not over UDP, or
    /// [`ConnectError::Family`].
    pub fn rebind(&mut self, id: FlowId, tuple: &Tuple) -> Result<(), ConnectError> {
        let key = Key::of(tuple).ok_or(ConnectError::Family)?;
        // Flows over UDP are never at rest.
        let flow = self.core.numbers.record(id.0).filter(|_| key.udp);
        let Some(flow) = flow.filter(|flow| self.core.flows[*flow].tcp_state() == State::Udp)
        else {
            return Err(ConnectError::InUse);
        };
        self.core.rebind(flow, &key)
    }

    /// Receives an IP packet; octets after its end (frame padding) are ignored. Verifies checksums
    /// if [`Settings::verify`] is set.
    #[inline]
    pub fn receive(&mut self, now: Nanos, packet: &[u8]) {
        self.take(now, packet, self.core.settings.verify, FlowHint::default());
    }

    /// Receives an IP packet whose TCP or UDP checksum was already verified or never computed, as
    /// in a GSO packet.
    #[inline]
    pub fn receive_verified(&mut self, now: Nanos, packet: &[u8]) {
        self.take(now, packet, false, FlowHint::default());
    }

    /// [`Stack::receive`] for a packet that went through [`Stack::prefetch`].
    #[inline]
    pub fn receive_prefetched(&mut self, now: Nanos, packet: &[u8], near: FlowHint) {
        self.take(now, packet, self.core.settings.verify, near);
    }

    /// Prefetches the flows of packets that are about to be received: their cache misses overlap
    /// instead of adding up. Writes the position and the hash of each flow to `near`, in the
    /// packets' order.
    #[inline]
    pub fn prefetch<'p>(&self, packets: impl Iterator<Item = &'p [u8]>, near: &mut [FlowHint]) {
        let mut n = 0;
        for (place, packet) in near.iter_mut().zip(packets) {
            *place = match packet.first().map(|first| first >> 4) {
                Some(6) => self.hint::<true>(packet),
                _ => self.hint::<false>(packet),
            };
            n += 1;
        }
        // A record spans two or three cache lines: one field of each is read.
        let touch = |flow: u32| {
            let f = &self.core.flows[flow];
            std::hint::black_box((f.local ^ f.aside, f.state));
        };
        let record = |near: &FlowHint| self.core.numbers.record(near.flow.wrapping_sub(1));
        // Loads where all of them are before the first record.
        near[..n].iter().for_each(|near| _ = std::hint::black_box(record(near)));
        near[..n].iter().filter_map(record).for_each(touch);
    }

    #[inline(always)]
    fn hint<const V6: bool>(&self, packet: &[u8]) -> FlowHint {
        let Some(key) = usual_key::<V6>(packet) else { return FlowHint::default() };
        let hash = self.core.hash(&key);
        FlowHint { flow: self.core.peek(hash, &key), hash: Some(hash) }
    }

    /// Prefetches the table slots for flows that are about to [connect](Stack::connect): their
    /// cache misses overlap.
    #[inline]
    pub fn prefetch_new(&self, tuples: impl Iterator<Item = Tuple>) {
        for key in tuples.filter_map(|tuple| Key::of(&tuple)) {
            std::hint::black_box(self.core.peek(self.core.hash(&key), &key));
        }
    }

    /// Whether the flows are so few that [`Stack::prefetch`] costs more time than it saves.
    #[inline]
    pub fn fits_cache(&self) -> bool {
        self.core.flows.0.len() <= FEW && !self.exceeds_cache()
    }

    /// Whether the tables exceed the CPU's near caches. In tables that fit, the extra reads of
    /// [`Stack::prefetch`] only cost time.
    #[inline]
    pub fn exceeds_cache(&self) -> bool {
        self.core.tables_memory() > CACHE_SIZE
    }

    /// Sets the lag of the timer clock (the `now` of all calls) against real time. Round-trip times
    /// and timestamps are in real time. Call it once, before received packets are processed: the
    /// previous lag applies to earlier arrivals.
    pub fn set_lag(&mut self, lag: Nanos) {
        self.core.lag_before = std::mem::replace(&mut self.core.lag, lag);
    }

    /// Sets when the next flow to open was due, on the timer clock.
    pub fn due(&mut self, due: Nanos) {
        self.core.connect_due = due;
    }

    /// Sets when the next received packet arrived, in real time. Its consequences are due at that
    /// time.
    #[inline]
    pub fn arrived(&mut self, at: Nanos) {
        self.core.arrived = at;
    }

    /// When the next received packet arrived, as set; 0: not set.
    #[inline]
    pub fn arrival(&self) -> Nanos {
        self.core.arrived
    }

    /// The latest time for the next call of [`Stack::advance`], if nothing else happens before.
    pub fn next_due(&self) -> Option<Nanos> {
        self.core.next_due()
    }

    /// Runs the timers that are due by `now`.
    pub fn advance(&mut self, now: Nanos) {
        while let Some(flow) = self.core.expire(now) {
            self.expired(now, flow);
        }
        self.core.expire_waits(now);
    }

    /// Sends pending packets until none are left or the output is full. Returns the number of
    /// packets.
    pub fn transmit(&mut self, now: Nanos, out: &mut impl Output) -> usize {
        let mut packets = 0;
        if !self.core.unsettled.is_empty() {
            self.settle_flows(now);
        }
        self.core.ack_overdue = false;
        while let Some(answer) = self.core.answers.front() {
            let len = usize::from(answer.len);
            out.due(answer.cause_tick);
            let Some(packet) =
                out.packet(answer.class, &answer.tuple, len, squall_units::Cut::WHOLE)
            else {
                return packets;
            };
            packet.copy_from_slice(&answer.octets[..len]);
            match self.core.classes.get_mut(usize::from(answer.class.0)) {
                Some(class) => {
                    class.counters.segments_out += 1;
                    class.counters.octets_out += len as u64;
                }
                None => {
                    self.core.strays.packets_out += 1;
                    self.core.strays.octets_out += len as u64;
                }
            }
            self.core.answers.pop_front();
            packets += 1;
        }
        while let Some(detour) = self.core.detours.front() {
            let len = detour.packet.len();
            out.due(detour.cause_tick);
            let (class, tuple) = (detour.class, detour.key.tuple());
            let Some(packet) = out.packet(class, &tuple, len, squall_units::Cut::WHOLE) else {
                return packets;
            };
            packet.copy_from_slice(&detour.packet);
            let counters = &mut self.core.classes[usize::from(class.0)].counters;
            counters.segments_out += 1;
            counters.octets_out += len as u64;
            counters.sent += (len - ip_len(detour.key.addresses) - UDP_HEADER) as u64;
            self.core.detours.pop_front();
            packets += 1;
        }
        while let Some(flow) = self.core.queue.front() {
            let written = match self.core.flows[flow].bits.has(Bits::V6) {
                false => self.transmit_flows::<false>(now, out),
                true => self.transmit_flows::<true>(now, out),
            };
            packets += written.packets;
            if written.left == Unsent::Room {
                break;
            }
        }
        packets
    }

    /// Sends pending packets of flows until the next flow has the other IP version. Each version has
    /// a loop of its own, into which its fast path is inlined.
    #[inline(never)]
    fn transmit_flows<const V6: bool>(&mut self, now: Nanos, out: &mut impl Output) -> Written {
        let mut packets = 0;
        let clock = stamp(now + self.core.lag);
        while let Some((flow, cause)) = self.core.queue.pop_front() {
            let bits = self.core.flows[flow].bits;
            if !bits.has(Bits::QUEUED) {
                continue;
            }
            if bits.has(Bits::V6) != V6 {
                self.core.queue.put_back((flow, cause));
                return Written { packets, left: Unsent::Turn };
            }
            out.due(cause);
            match self.write_fast::<V6>(now, clock, flow, out) {
                FastWrite::Sent => {
                    packets += 1;
                    continue;
                }
                FastWrite::NoRoom => {
                    self.core.queue.put_back((flow, cause));
                    return Written { packets, left: Unsent::Room };
                }
                FastWrite::Slow => (),
            }
            let sent = self.write(now, flow, out);
            packets += sent.packets;
            match sent.left {
                Unsent::Nothing => self.core.flows[flow].bits.clear(Bits::QUEUED),
                // Other flows have their turn first.
                Unsent::Turn => self.core.queue.push_back((flow, cause)),
                Unsent::Room => {
                    self.core.queue.put_back((flow, cause));
                    self.settle(now, flow);
                    return Written { packets, left: Unsent::Room };
                }
            }
            self.settle(now, flow);
        }
        Written { packets, left: Unsent::Nothing }
    }

    /// Whether [`Stack::transmit`] has something to send.
    pub fn has_output(&self) -> bool {
        !self.core.answers.is_empty()
            || !self.core.queue.is_empty()
            || !self.core.detours.is_empty()
            || !self.core.unsettled.is_empty()
    }

    /// Whether resets or answers to packets without a flow wait to be sent.
    pub fn has_answers(&self) -> bool {
        !self.core.answers.is_empty()
    }

    /// Whether some flow has received 64 KiB without sending an acknowledgment: [`Stack::transmit`]
    /// should run before more is received. Linux also acknowledges at least once per GRO packet,
    /// which may have that size.
    pub fn is_ack_overdue(&self) -> bool {
        self.core.ack_overdue
    }

    /// Calls `f` with the application and the flow's socket, as in an event; `None`: no such flow.
    pub fn with<R>(
        &mut self,
        now: Nanos,
        id: FlowId,
        f: impl FnOnce(&mut A, &mut Socket<'_, A::State>) -> R,
    ) -> Option<R> {
        if self.core.numbers.place(id.0) == Place::Free {
            return None;
        }
        let flow = self.core.record(id.0);
        let state = self.core.flows[flow].tcp_state();
        if matches!(state, State::Closed | State::TimeWait) {
            return None;
        }
        self.core.caused_at(now);
        let result = f(&mut self.app, &mut Socket { core: &mut self.core, flow, now });
        self.settle(now, flow);
        Some(result)
    }

    /// Number of open flows, without those in TIME-WAIT.
    pub fn active(&self) -> usize {
        self.core.active as usize
    }

    pub fn time_wait(&self) -> usize {
        self.core.time_wait as usize
    }

    /// # Panics
    /// If there is no such class.
    pub fn counters(&self, class: ClassId) -> &Counters {
        &self.core.classes[usize::from(class.0)].counters
    }

    pub fn tunables(&self, class: ClassId) -> &Tunables {
        &self.core.classes[usize::from(class.0)].tunables
    }

    pub fn strays(&self) -> &UnmatchedCounters {
        &self.core.strays
    }

    pub fn app(&self) -> &A {
        &self.app
    }

    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// Memory usage of all flows in bytes: records, extras, the table.
    pub fn memory(&self) -> usize {
        self.core.memory()
    }

    // Shared with the other modules of the stack.

    #[inline(always)]
    fn take(&mut self, now: Nanos, packet: &[u8], verify: bool, mut near: FlowHint) {
        let strays = &mut self.core.strays;
        strays.packets_in += 1;
        strays.octets_in += packet.len() as u64;
        self.core.caused_by_packet(now);
        let is_syn = |header: usize| packet.get(header + 13).is_some_and(|flags| flags & SYN != 0);
        let done = match packet.first().map(|first| first >> 4) {
            Some(6) if is_syn(IPV6) => self.receive_syn::<true>(now, packet, verify, &mut near),
            Some(6) => self.receive_fast::<true>(now, packet, verify, &mut near),
            _ if is_syn(IPV4) => self.receive_syn::<false>(now, packet, verify, &mut near),
            _ => self.receive_fast::<false>(now, packet, verify, &mut near),
        };
        if done {
            return;
        }
        if let Err(bad) = self.dispatch(now, packet, verify, near) {
            let strays = &mut self.core.strays;
            *match bad {
                Reject::NotIp => &mut strays.not_ip,
                Reject::Malformed => &mut strays.malformed,
                Reject::IpChecksum => &mut strays.bad_ip_checksum,
                Reject::Fragment => &mut strays.fragments,
                Reject::TcpChecksum => &mut strays.bad_tcp_checksum,
                Reject::UdpChecksum => &mut strays.bad_udp_checksum,
                Reject::IcmpChecksum => &mut strays.bad_icmp_checksum,
                Reject::Protocol => &mut strays.other_protocol,
            } += 1;
        }
    }

    #[inline(never)]
    fn dispatch(
        &mut self,
        now: Nanos,
        packet: &[u8],
        verify: bool,
        near: FlowHint,
    ) -> Result<(), Reject> {
        let ip = Ip::read(packet, verify)?;
        match ip.protocol {
            TCP => self.receive_tcp(now, &ip, verify, near),
            UDP => {
                let header = ip.payload.first_chunk::<UDP_HEADER>().ok_or(Reject::Malformed)?;
                let len = usize::from(be16(header, 4));
                if len < UDP_HEADER || len > ip.payload.len() {
                    return Err(Reject::Malformed);
                }
                let ip = Ip { payload: &ip.payload[..len], ..ip };
                let unchecked =
                    be16(header, 6) == 0 && matches!(ip.addresses, Addresses::V4 { .. });
                if verify && !unchecked && !ip.checksum_is_good() {
                    return Err(Reject::UdpChecksum);
                }
                self.receive_udp(now, packet, &ip);
                Ok(())
            }
            ICMP | ICMP6 => self.receive_icmp(now, &ip, verify),
            _ => Err(Reject::Protocol),
        }
    }

    /// Delivers [`Event::Settle`] to the flows that have requested it.
    #[inline(never)]
    fn settle_flows(&mut self, now: Nanos) {
        let mut unsettled = std::mem::take(&mut self.core.unsettled);
        for Unsettled { number, cause, cause_tick } in unsettled.drain(..) {
            if self.core.numbers.place(number) == Place::Free {
                continue;
            }
            let flow = self.core.record(number);
            if matches!(self.core.flows[flow].tcp_state(), State::Closed | State::TimeWait) {
                continue;
            }
            // The flow's packets were due when these arrived.
            (self.core.cause, self.core.cause_tick) = (cause, cause_tick);
            self.notify(now, flow, Event::Settle);
            self.settle(now, flow);
        }
        // Flows that have requested it again wait for the next time.
        unsettled.append(&mut self.core.unsettled);
        self.core.unsettled = unsettled;
    }

    /// Passes an event to the application, unless the flow was aborted: an aborted flow gets only
    /// its last event.
    #[inline(always)]
    pub(crate) fn notify(&mut self, now: Nanos, flow: u32, event: Event<'_>) {
        if !self.core.flows[flow].bits.has(Bits::ABORT) {
            self.app.event(&mut Socket { core: &mut self.core, flow, now }, event);
        }
    }

    /// Ends the flow on the application's side and releases its record.
    pub(crate) fn finish(&mut self, now: Nanos, flow: u32, reason: Reason) {
        self.notify_gone(now, flow, reason);
        self.core.release(flow);
    }

    #[inline(always)]
    pub(crate) fn notify_gone(&mut self, now: Nanos, flow: u32, reason: Reason) {
        let (f, class) = self.core.parts(flow);
        class.counters.end(reason);
        f.bits.set(Bits::CLOSE | Bits::ABORT);
        self.app.event(&mut Socket { core: &mut self.core, flow, now }, Event::Gone(reason));
    }

    /// Runs after any step that may have changed the flow: ends it if the application has aborted.
    #[inline(always)]
    pub(crate) fn settle(&mut self, now: Nanos, flow: u32) {
        let bits = self.core.flows[flow].bits;
        if bits.delays_ack() {
            self.core.arm_ack(now, flow);
        }
        if bits.has(Bits::ABORT) || bits.is_udp() {
            self.settle_end(now, flow);
        }
    }

    #[inline(never)]
    fn settle_end(&mut self, now: Nanos, flow: u32) {
        let f = &self.core.flows[flow];
        match f.tcp_state() {
            // A flow in TIME-WAIT waits only for its own timer.
            State::Closed | State::TimeWait => (),
            _ if f.bits.has(Bits::ABORT) => self.finish(now, flow, Reason::Aborted),
            State::Udp if f.bits.has(Bits::CLOSE) && self.core.first_piece(flow).piece.len == 0 => {
                self.finish(now, flow, Reason::Closed)
            }
            _ => (),
        }
    }

    /// Handles a timer of the flow, which the wheel has dropped.
    fn expired(&mut self, now: Nanos, flow: u32) {
        let (rtx, app, ack) = self.core.due(now, flow);
        // A timer counts as due at its tick: a late call must not delay its consequences.
        let at = self.core.wheel.instant(self.core.wheel.now());
        self.core.caused_at(at.min(now));
        let bits = &mut self.core.flows[flow].bits;
        if ack {
            bits.clear(Bits::ACK_LATER);
            bits.set(Bits::ACK_NOW);
            self.core.counters(flow).acks_delayed += 1;
            self.core.enqueue(flow);
        }
        self.core.release_paced(now, flow);
        if rtx {
            self.core.flows[flow].bits.clear(Bits::RTX);
            if self.core.flows[flow].tcp_state() == State::Udp {
                return self.finish(now, flow, Reason::Idle);
            }
            if self.rtx_expired(now, flow).is_break() {
                return;
            }
        }
        if app {
            let at = self.core.wheel.instant_near(self.core.flows[flow].app_at);
            self.core.caused_at(at.min(now));
            self.core.flows[flow].bits.clear(Bits::APP);
            self.notify(now, flow, Event::Timer);
        }
        self.settle(now, flow);
        self.core.arm(now, flow);
    }

    /// Restarts the idle timer of a UDP flow after a datagram in either direction.
    pub(crate) fn restart_idle(&mut self, now: Nanos, flow: u32) {
        let idle = self.core.class(flow).tunables.udp_idle;
        if idle > Nanos::ZERO {
            self.core.start_rtx(now, flow, ticks(idle));
        }
    }
}

/// Initial sequence number (RFC 6528 §3): a clock of about 4 us plus a keyed hash of addresses
/// and ports, so that an observer of one flow cannot predict another's. `packed`: the addresses in
/// the flow's record.
#[inline(always)]
pub(crate) fn isn(secret: [u64; 2], now: Nanos, key: &Key, packed: Packed) -> u32 {
    let ports = u64::from(key.local_port) << 16 | u64::from(key.remote_port);
    let short = u64::from(packed.local) << 32 | u64::from(packed.remote);
    let f = match key.addresses {
        Addresses::V4 { .. } => hash::strong(secret, [short, ports]),
        // The number of the upper bits replaces them: it never changes.
        Addresses::V6 { .. } if packed.upper != WHOLE => {
            hash::strong(secret, [short, 1 << 63 | u64::from(packed.upper) << 32 | ports])
        }
        Addresses::V6 { local, remote } => {
            let words = [local.upper, local.lower, remote.upper, remote.lower];
            let [a, b, c, d] = words.map(u64::from_be);
            hash::strong(secret, [a, b, c, d, ports])
        }
    };
    (f as u32).wrapping_add((now.0 >> 12) as u32)
}

/// Where to look for the flow of a packet. Belongs to one packet of one stack, because it has the
/// hash of the packet's addresses and ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowHint {
    /// The number + 1 of the flow in the first slot of the hash, or 0.
    pub(crate) flow: u32,
    /// The hash of a TCP packet, if it was computed.
    pub(crate) hash: Option<u32>,
}

/// Result of [`Stack::write_fast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastWrite {
    /// One segment; the flow has nothing left to send.
    Sent,
    /// The output has no room.
    NoRoom,
    /// The slow path has to decide.
    Slow,
}

/// Why [`Stack::write`] or [`Stack::transmit_flows`] stopped before everything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    Nothing,
    /// Something remains; others have their turn.
    Turn,
    /// Data remains; the output is full.
    Room,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub packets: usize,
    pub left: Unsent,
}
