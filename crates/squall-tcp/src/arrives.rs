//! SEGMENT ARRIVES: RFC 9293 §3.10.7, in the RFC's order, with the additional checks of RFC 5961
//! and 7323.

use std::ops::ControlFlow;

use squall_units::Nanos;
use squall_wire::tcp_flags::{ACK, CWR, ECE, FIN, PSH, RST, SYN};

use crate::{
    Application, ClassId, Congestion, Counters, Deed, Event, Events, FlowId, Reason, congestion,
    core::{Class, Found, MAX_UNACKED, lag_ticks, rto},
    flow::{Bits, Flow, State},
    packet::{
        Ip, Key, Options, Reject, STAMPED, SYN_HEADER, Segment, TCP_HEADER, TcpHeader, ip_len,
        sack_blocks,
    },
    pieces::{NO_PIECE, Pieces, Placed},
    seq::{distance, le, lt, max},
    stack::{FlowHint, Stack, isn},
    wheel::tick,
};

/// MSS for a peer that announces none (RFC 9293 §3.7.1): 576 and 1280 octets less the headers.
const DEFAULT_MSS4: u16 = 536;
const DEFAULT_MSS6: u16 = 1220;

/// As Linux's TCP_MIN_MSS, 60 + 60 + 8 - (20 + 20): the longest headers still leave 8 octets of
/// data. A smaller announced MSS would multiply the packets of each response, the attack of
/// CVE-2019-11479 (Linux's own floor for the announced MSS is TCP_MIN_SND_MSS, 48).
pub(crate) const MIN_MSS: u16 = 88;

const DONE: ControlFlow<()> = ControlFlow::Break(());
const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());

impl<A: Application> Stack<A> {
    /// Fast path, for most packets but SYNs: TCP with timestamps or no options, in a flow that expects
    /// the segment. Returns whether it processed the packet; if not, nothing has changed and the slow
    /// path has to process it. Not inlined, because with the caller's values in registers too, most of
    /// a segment's would not be.
    #[inline(never)]
    pub(crate) fn receive_fast<const V6: bool>(
        &mut self,
        now: Nanos,
        packet: &[u8],
        verify: bool,
        near: &mut FlowHint,
    ) -> bool {
        match Segment::read_stamped::<V6>(packet, verify) {
            Some((key, segment)) => self.receive_parsed(now, &key, &segment, near),
            None => self.receive_others::<V6>(now, packet, verify, near),
        }
    }

    /// [`Stack::receive_fast`] for segments without timestamps.
    #[inline(never)]
    fn receive_others<const V6: bool>(
        &mut self,
        now: Nanos,
        packet: &[u8],
        verify: bool,
        near: &mut FlowHint,
    ) -> bool {
        match Segment::read_fast::<V6>(packet, verify) {
            Some((key, segment)) => self.receive_parsed(now, &key, &segment, near),
            None => false,
        }
    }

    #[inline(always)]
    fn receive_parsed(
        &mut self,
        now: Nanos,
        key: &Key,
        segment: &Segment<'_>,
        near: &mut FlowHint,
    ) -> bool {
        let Some(flow) = self.core.find_near(near, key) else { return false };
        let header = if segment.timestamps.is_some() { STAMPED } else { TCP_HEADER };
        let octets = ip_len(key.addresses) + header + segment.payload.len();
        self.receive_next(now, flow, segment, Some(octets)).is_some()
    }

    /// As [`Stack::receive_fast`], for most SYNs that open a flow and for most SYN-ACKs.
    #[inline(never)]
    pub(crate) fn receive_syn<const V6: bool>(
        &mut self,
        now: Nanos,
        packet: &[u8],
        verify: bool,
        near: &mut FlowHint,
    ) -> bool {
        let Some((key, segment, options)) = Segment::read_syn::<V6>(packet, verify) else {
            return false;
        };
        let octets = ip_len(key.addresses) + SYN_HEADER;
        if let Some(flow) = self.core.find_near(near, &key) {
            let (f, class) = self.core.parts(flow);
            if f.tcp_state() != State::SynSent {
                return false;
            }
            count_in(&mut class.counters, octets);
            let _ = self.arrives_syn_sent(now, flow, &segment, &options);
            self.settle(now, flow);
            return true;
        }
        let hash = near.hash.unwrap_or_else(|| self.core.hash(&key));
        debug_assert_eq!(hash, self.core.hash(&key), "a hint belongs to one packet");
        // A tuple in TIME-WAIT decides first whether the SYN is newer.
        if self.core.find_wait(&key).is_some() {
            return false;
        }
        self.listen(now, &key, hash, octets, &segment, &options);
        true
    }

    pub(crate) fn receive_tcp(
        &mut self,
        now: Nanos,
        ip: &Ip<'_>,
        verify: bool,
        near: FlowHint,
    ) -> Result<(), Reject> {
        let (remote_port, local_port, segment) = Segment::read(ip)?;
        if verify && !ip.checksum_is_good() {
            return Err(Reject::TcpChecksum);
        }
        let key = Key { addresses: ip.addresses, local_port, remote_port, udp: false };
        let hash = near.hash.unwrap_or_else(|| self.core.hash(&key));
        // With the hash of another packet, a new flow would have a place in the table where no
        // packet of its own finds it.
        debug_assert_eq!(hash, self.core.hash(&key), "a hint belongs to one packet");
        let flow = match self.core.find(hash, &key) {
            Some(Found::Flow(flow)) => {
                self.count_in(flow, ip);
                let f = &self.core.flows[flow];
                let last = (f.bits.has(Bits::TIMESTAMPS), f.ts_recent, f.rcv_nxt);
                let reused = f.tcp_state() == State::TimeWait && is_new(last, &segment);
                if reused {
                    self.core.counters(flow).time_wait_reused += 1;
                    self.core.release(flow);
                }
                (!reused).then_some(flow)
            }
            Some(Found::Wait(place)) => self.wake_wait(now, place, ip, &segment),
            None => None,
        };
        match flow {
            Some(flow) => {
                if self.receive_next(now, flow, &segment, None).is_none() {
                    let _ = self.segment_arrives(now, flow, &segment);
                    self.settle(now, flow);
                }
            }
            None => {
                let options = Options::read(segment.options);
                self.listen(now, &key, hash, ip.octets(), &segment, &options);
            }
        }
        Ok(())
    }

    pub(crate) fn count_in(&mut self, flow: u32, ip: &Ip<'_>) {
        count_in(self.core.counters(flow), ip.octets());
    }

    /// Handles a segment for a flow in TIME-WAIT. `None`: the segment opens a new flow, and the old
    /// one is released.
    fn wake_wait(
        &mut self,
        now: Nanos,
        place: u32,
        ip: &Ip<'_>,
        segment: &Segment<'_>,
    ) -> Option<u32> {
        let wait = *self.core.wait(place);
        let stamps = u32::from(wait.bits.0) & Bits::TIMESTAMPS != 0;
        let reused = is_new((stamps, wait.ts_recent, wait.rcv_nxt), segment);
        let counters = &mut self.core.classes[usize::from(wait.class)].counters;
        count_in(counters, ip.octets());
        if reused {
            counters.time_wait_reused += 1;
            self.core.end_wait(place);
            return None;
        }
        Some(self.core.expand(now, place))
    }

    /// Sends the SYN of an active open (OPEN, RFC 9293 §3.10.1) for a new flow. The SYN counts as
    /// sent from here on, so that SND.NXT never moves backward.
    #[inline(always)]
    pub(crate) fn open(&mut self, now: Nanos, flow: u32, key: &Key) {
        let secret = self.core.settings.key;
        let (f, class) = self.core.parts(flow);
        let isn = isn(secret, now, key, f.packed());
        (f.snd_una, f.snd_nxt) = (isn, isn.wrapping_add(1));
        f.bits.set(class.offers | Bits::HEAD | Bits::QUEUED);
        f.bits.set_wscale(None);
        self.core.queue.push_back((flow, self.core.cause_tick));
    }

    /// Handles a segment that belongs to no flow, in an IP packet of `octets`: CLOSED and LISTEN
    /// (RFC 9293 §3.10.7.1, §3.10.7.2).
    #[inline(never)]
    fn listen(
        &mut self,
        now: Nanos,
        key: &Key,
        hash: u32,
        octets: usize,
        segment: &Segment<'_>,
        options: &Options,
    ) {
        // First, a RST: never answered, because two closed ends would reset each other forever.
        if segment.has(RST) {
            self.core.strays.unknown_flow += 1;
            return;
        }
        // Second, an ACK: no connection exists that it could acknowledge.
        if segment.has(ACK) {
            self.core.strays.unknown_flow += 1;
            return self.refuse(key, segment);
        }
        // Fourth, neither SYN nor ACK: LISTEN drops it, CLOSED resets it.
        if !segment.has(SYN) {
            self.core.strays.unknown_flow += 1;
            if !self.app.listens(&key.tuple()) {
                self.refuse(key, segment);
            }
            return;
        }
        // Checked before `accept`: an application that has accepted a flow would wait for its
        // events.
        if self.core.is_full() && self.app.listens(&key.tuple()) {
            self.core.strays.accept_full += 1;
            return;
        }
        let taken = self.app.accept(now, &key.tuple());
        let Some((class, state)) = taken else {
            self.core.strays.not_accepted += 1;
            return self.refuse(key, segment);
        };
        // Third, a SYN.
        let Some(flow) = self.core.allocate(class, key, hash, State::SynReceived, state) else {
            // Dropped without an answer, as by a full backlog: the peer repeats its SYN.
            self.core.strays.accept_full += 1;
            return;
        };
        self.open(now, flow, key);
        let (f, class) = self.core.parts(flow);
        class.counters.accepts += 1;
        count_in(&mut class.counters, octets);
        f.bits.set(Bits::PASSIVE);
        take_syn(f, class, segment, options, segment.flags & (ECE | CWR) == ECE | CWR);
    }

    /// Sends a reset for a segment that belongs to no flow (§3.5.2, group 1).
    fn refuse(&mut self, key: &Key, segment: &Segment<'_>) {
        // If the segment has an ACK, the peer expects that number in the reset; if not, the reset
        // has to acknowledge the segment, because the peer would ignore it otherwise.
        if segment.has(ACK) {
            self.core.answer_tcp(ClassId::STRAY, key, segment.ack, None, RST);
        } else {
            self.core.answer_tcp(
                ClassId::STRAY,
                key,
                0,
                Some(segment.seq.wrapping_add(segment.seq_len())),
                RST,
            );
        }
    }

    /// Breaks when the segment is done; the flow may have been released.
    fn segment_arrives(&mut self, now: Nanos, flow: u32, segment: &Segment<'_>) -> ControlFlow<()> {
        match self.core.flows[flow].tcp_state() {
            State::SynSent => {
                let options = Options::read(segment.options);
                self.arrives_syn_sent(now, flow, segment, &options)
            }
            _ => self.arrives_otherwise(now, flow, segment),
        }
    }

    /// Fast path, for most segments: the next segment of a flow without losses or out-of-order
    /// data. Has the same effect as the slow path, and [settles](Stack::settle) the flow. Counts the
    /// segment if `octets` (of its IP packet) are given. `None`: nothing has changed, and the slow
    /// path has to process the segment.
    #[inline(always)]
    fn receive_next(
        &mut self,
        now: Nanos,
        flow: u32,
        segment: &Segment<'_>,
        octets: Option<usize>,
    ) -> Option<()> {
        // Each part is looked up once: after any store to a record the compiler has to load where
        // the records are again, because it cannot tell that the store did not change it.
        let core = &mut self.core;
        let lag = core.lag;
        let f = &mut core.flows.0[flow as usize];
        let class = &mut core.classes[usize::from(f.class)];
        let payload = segment.payload;
        let (bits, state) = (f.bits, f.bits.state());
        let fin = segment.has(FIN);
        let len = payload.len() as u32 + u32::from(fin);
        let acked = segment.ack.wrapping_sub(f.snd_una);
        let flight = f.flight();
        let window = u32::from(segment.window) << bits.wscale().unwrap_or(0);
        // The states that the slow path handles, and the octets that the peer may still send. A SYN
        // is timed with timestamps, too, and its sample is taken below.
        let room = f.rcv_adv.wrapping_sub(f.rcv_nxt);
        let (odd, room) = match state {
            State::SynReceived if acked == 1 => (Bits::SLOW_PATH, room),
            State::Established | State::FinWait1 | State::FinWait2 => {
                (Bits::SLOW_PATH | Bits::TIMING, room)
            }
            State::CloseWait | State::LastAck => (Bits::SLOW_PATH | Bits::TIMING, 0),
            _ => return None,
        };
        let next = !bits.has(odd)
            && segment.flags & !(PSH | FIN) == ACK
            && !f.has_extra()
            && segment.seq == f.rcv_nxt
            && len <= room
            && acked <= flight
            && acked + len > 0
            && window > 0
            && segment.options.is_empty();
        if !next {
            return None;
        }
        let stamps = bits.has(Bits::TIMESTAMPS);
        match segment.timestamps {
            Some((value, _)) if stamps => {
                // PAWS (RFC 7323 §5.3); the slow path counts and answers it.
                if lt(value, f.ts_recent) {
                    return None;
                }
                // TS.Recent follows Last.ACK.sent: it does not change while an ACK is owed (RFC
                // 7323 §4.3), so that a delayed ACK is measured from the first of its segments.
                if !bits.has(Bits::ACK_NOW | Bits::ACK_LATER) {
                    f.ts_recent = value;
                }
            }
            None if stamps => return None,
            _ => (),
        }
        f.snd_wnd = window;
        if let Some(octets) = octets {
            count_in(&mut class.counters, octets);
        }
        if acked == flight && class.at_once {
            let parts = (&mut self.app, &mut core.pieces, &mut *f, &mut *class);
            if let Some(next) = receive_at_once(parts, (now, lag), segment, (bits, acked)) {
                self.after_at_once(now, flow, next);
                return Some(());
            }
        }
        self.receive_one_by_one(now, flow, *segment, acked);
        Some(())
    }

    /// The rest of [`Stack::receive_next`] if the application gets the events one by one. The
    /// segment is passed by value, because one whose address is taken is written to memory.
    #[inline(never)]
    fn receive_one_by_one(&mut self, now: Nanos, flow: u32, segment: Segment<'_>, acked: u32) {
        let _ = self.events_of_next(now, flow, &segment, acked);
        self.settle(now, flow);
    }

    #[inline(always)]
    fn events_of_next(
        &mut self,
        now: Nanos,
        flow: u32,
        segment: &Segment<'_>,
        acked: u32,
    ) -> ControlFlow<()> {
        let lag = self.core.lag;
        let (f, class) = self.core.parts(flow);
        let (state, flight) = (f.tcp_state(), f.flight());
        let (payload, fin) = (segment.payload, segment.has(FIN));
        if state == State::SynReceived {
            f.snd_una = segment.ack;
            sample_syn(f, class, now + lag, true);
            self.establish(now, flow)?;
            return self.next_octets(now, flow, payload, segment.has(PSH), fin);
        }
        f.bits.reset_streaks();
        let talks = matches!(state, State::Established | State::CloseWait);
        let mut fin_acked = false;
        if acked > 0 {
            f.snd_una = segment.ack;
            fin_acked = !talks && state != State::FinWait2 && acked == flight;
            sample_and_grow(f, class, segment, now + lag, (acked, flight));
            class.counters.acked += u64::from(acked - u32::from(fin_acked));
            f.bits.clear(Bits::RTX);
            if fin_acked && state == State::FinWait1 {
                f.bits.set_state(State::FinWait2);
            }
            if acked < flight {
                let rto = rto(f, class);
                self.core.start_rtx(now, flow, rto);
            } else {
                f.rtx_at = tick(now);
                self.start_idle(now, flow);
            }
        } else if flight == 0 {
            self.restart_idle_tcp(now, flow);
        }
        let (all, unsent) = self.core.drop_piece(flow);
        if talks && (unsent || self.core.flows[flow].bits.has(Bits::CLOSE)) {
            self.core.enqueue(flow);
        }
        if acked > u32::from(fin_acked) {
            self.notify(
                now,
                flow,
                Event::Acknowledged { octets: acked - u32::from(fin_acked), all },
            );
            self.aborted(now, flow)?;
        }
        if fin_acked && state == State::LastAck {
            self.finish(now, flow, Reason::Closed);
            return DONE;
        }
        self.next_octets(now, flow, payload, segment.has(PSH), fin)
    }

    /// Takes the steps that [`receive_at_once`] leaves, and settles the flow.
    #[inline(always)]
    fn after_at_once(&mut self, now: Nanos, flow: u32, next: Next) {
        if next.finish {
            return self.finish(now, flow, Reason::Closed);
        }
        if next.idle > 0 {
            self.core.start_rtx(now, flow, next.idle);
        }
        self.core.ack_overdue |= next.overdue;
        if next.queue {
            self.core.queue.push_back((flow, self.core.cause_tick));
        }
        if next.ends {
            let _ = self.time_wait_begins(now, flow);
        } else if next.delays_ack {
            self.core.arm_ack(now, flow);
        }
    }

    /// Delivers the next octets of the stream, and its end.
    #[inline(always)]
    fn next_octets(
        &mut self,
        now: Nanos,
        flow: u32,
        payload: &[u8],
        push: bool,
        fin: bool,
    ) -> ControlFlow<()> {
        if !payload.is_empty() {
            let (f, class) = self.core.parts(flow);
            f.rcv_nxt = f.rcv_nxt.wrapping_add(payload.len() as u32);
            class.counters.delivered += payload.len() as u64;
            self.acknowledge_later(now, flow, payload.len(), push);
            self.notify(now, flow, Event::Received(payload));
            self.aborted(now, flow)?;
        }
        if fin { self.fin(now, flow) } else { CONTINUE }
    }

    /// Schedules an acknowledgment of `octets` in-order octets. By default, the second segment is
    /// acknowledged at once (RFC 9293 §3.8.6.3, SHLD-19), a single one after the delay.
    #[inline(always)]
    fn acknowledge_later(&mut self, now: Nanos, flow: u32, octets: usize, push: bool) {
        let lag = self.core.lag;
        let (f, class) = self.core.parts(flow);
        let second = match class.tunables.ack_octets {
            0 => is_second(f, octets),
            most => {
                let room = f.rcv_adv.wrapping_sub(f.rcv_nxt);
                if class.window.saturating_sub(room) >= most || octets > usize::from(f.mss) {
                    // As TRex does (tcp.no_delay_counter): one ACK per that amount, even if several
                    // segments arrive in one batch.
                    self.ack_separately(now, flow);
                    return;
                }
                false
            }
        };
        if let Some(overdue) = owe_ack(f, class, (now, lag), second, push) {
            self.core.ack_overdue |= overdue;
            self.ack_now(flow);
        }
    }

    // Handles a segment in SYN-SENT (RFC 9293 §3.10.7.3).
    #[inline(never)]
    fn arrives_syn_sent(
        &mut self,
        now: Nanos,
        flow: u32,
        segment: &Segment<'_>,
        options: &Options,
    ) -> ControlFlow<()> {
        let f = &self.core.flows[flow];
        // First, the ACK: an unacceptable one is answered with a reset.
        let acked = segment.has(ACK);
        if acked && segment.ack != f.snd_nxt {
            if !segment.has(RST) {
                let (class, key) = (ClassId(f.class), self.core.key(flow));
                self.core.answer_tcp(class, &key, segment.ack, None, RST);
            }
            self.core.counters(flow).unexpected += 1;
            return CONTINUE;
        }
        // Second, the RST.
        if segment.has(RST) {
            self.core.counters(flow).resets_in += 1;
            // Ignored without an ACK of the SYN: an attacker could forge it without any sequence
            // number.
            if acked {
                self.finish(now, flow, Reason::Refused);
                return DONE;
            }
            self.core.counters(flow).resets_ignored += 1;
            return CONTINUE;
        }
        // Fourth, the SYN.
        if !segment.has(SYN) {
            self.core.counters(flow).unexpected += 1;
            return CONTINUE;
        }
        let ecn = segment.flags & (ECE | CWR) == if acked { ECE } else { ECE | CWR };
        let core = &mut self.core;
        let real = now + core.lag;
        let f = &mut core.flows.0[flow as usize];
        let class = &mut core.classes[usize::from(f.class)];
        sample_syn(f, class, real, acked);
        take_syn(f, class, segment, options, ecn);
        if !acked {
            // Simultaneous open (RFC 9293 §3.5, figure 8): the SYN is sent again, with an ACK.
            f.bits.set_state(State::SynReceived);
            f.bits.set(Bits::HEAD);
            self.core.enqueue(flow);
            return CONTINUE;
        }
        f.snd_una = segment.ack;
        f.bits.set(Bits::ACK_NOW);
        let plain = segment.payload.is_empty() && !segment.has(FIN);
        let events = Events { established: true, ..Events::default() };
        if plain
            && class.at_once
            && f.aside == NO_PIECE
            && !f.bits.has(Bits::CLOSE | Bits::ABORT)
            && let Some(deed) = self.app.at_once(&mut f.state, FlowId(f.number), real, events)
        {
            opened(f, class, now);
            act(f, &mut core.pieces, deed);
            let idle = class.keepidle;
            core.enqueue(flow);
            if idle > 0 {
                core.start_rtx(now, flow, idle);
            }
            return CONTINUE;
        }
        core.enqueue(flow);
        self.establish(now, flow)?;
        if segment.payload.is_empty() && !segment.has(FIN) {
            return CONTINUE;
        }
        // Sixth and following: data after the SYN.
        self.text(now, flow, segment.seq.wrapping_add(1), segment.payload, segment.has(FIN))
    }

    /// SYN-SENT or SYN-RECEIVED becomes ESTABLISHED.
    fn establish(&mut self, now: Nanos, flow: u32) -> ControlFlow<()> {
        self.opened(now, flow);
        self.core.enqueue(flow);
        self.notify(now, flow, Event::Established);
        self.aborted(now, flow)
    }

    /// The stack's part of [`Stack::establish`].
    #[inline(always)]
    fn opened(&mut self, now: Nanos, flow: u32) {
        let (f, class) = self.core.parts(flow);
        opened(f, class, now);
        if class.tunables.congestion == Congestion::Bbr {
            self.begin_model(now, flow);
        }
        self.start_idle(now, flow);
    }

    /// Breaks if the application has aborted, in which case the flow is released.
    #[inline(always)]
    fn aborted(&mut self, now: Nanos, flow: u32) -> ControlFlow<()> {
        if self.core.flows[flow].bits.has(Bits::ABORT) {
            self.finish(now, flow, Reason::Aborted);
            return DONE;
        }
        CONTINUE
    }

    // Handles a segment in any other state (RFC 9293 §3.10.7.4).
    #[inline(never)]
    fn arrives_otherwise(
        &mut self,
        now: Nanos,
        flow: u32,
        segment: &Segment<'_>,
    ) -> ControlFlow<()> {
        let (mut seq, payload, mut flags) = (segment.seq, segment.payload, segment.flags);
        let (f, class) = self.core.parts(flow);
        let state = f.tcp_state();
        // Repeated SYNs in SYN-RECEIVED. A SYN-ACK from a simultaneous open is processed for its
        // ACK; a plain SYN shows that the SYN-ACK was lost, so the SYN-ACK is sent again at once.
        if state == State::SynReceived && flags & SYN != 0 && seq.wrapping_add(1) == f.rcv_nxt {
            if flags & ACK != 0 {
                (seq, flags) = (f.rcv_nxt, flags & !SYN);
            } else if flags & RST == 0 {
                f.bits.set(Bits::HEAD);
                class.counters.duplicate_segments += 1;
                self.core.enqueue(flow);
                return CONTINUE;
            }
        }
        // RFC 7323 §5.3: R1 comes before the check of the sequence number, because an old duplicate
        // may pass that check after the numbers have wrapped.
        if f.bits.has(Bits::TIMESTAMPS) && flags & RST == 0 {
            match segment.timestamps {
                Some((value, _)) if lt(value, f.ts_recent) => {
                    class.counters.paws_drops += 1;
                    self.answer_with_ack(now, flow, !payload.is_empty());
                    return CONTINUE;
                }
                Some(_) => (),
                // Once agreed, every segment except a RST has timestamps (§3.2). Without them PAWS
                // cannot judge the segment, so it is dropped.
                None => {
                    class.counters.unexpected += 1;
                    return CONTINUE;
                }
            }
        }
        // First, the sequence number.
        let len = payload.len() as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let (next, window) = (f.rcv_nxt, f.rcv_adv.wrapping_sub(f.rcv_nxt));
        let inside = |at: u32| at.wrapping_sub(next) < window;
        let acceptable = match (len, window) {
            (0, 0) => seq == next,
            (0, _) => inside(seq),
            (_, 0) => false,
            // The segment begins or ends inside the window, or spans it. RFC 9293 lacks the third
            // case, but a GSO packet may be longer than the window.
            _ => {
                inside(seq)
                    || inside(seq.wrapping_add(len - 1))
                    || le(seq, next) && lt(next, seq.wrapping_add(len))
            }
        };
        // With a closed window, ACKs and RSTs at RCV.NXT still count ("special allowance"), because
        // otherwise two closed windows could never open.
        let counts = acceptable || window == 0 && seq == next;
        if !counts {
            let old = le(seq.wrapping_add(len), next);
            *(if old {
                &mut class.counters.duplicate_segments
            } else {
                &mut class.counters.out_of_window
            }) += 1;
            if flags & RST == 0 {
                // RFC 9293 §3.10.7.4 requires the ACK: it resynchronizes a peer whose ACK was lost.
                self.answer_with_ack(now, flow, !payload.is_empty());
                // A repeated FIN restarts the 2 MSL time-out: the peer repeats it because the last
                // ACK was lost.
                if state == State::TimeWait && flags & FIN != 0 {
                    self.start_time_wait(now, flow);
                }
            } else {
                class.counters.resets_in += 1;
                class.counters.resets_ignored += 1;
            }
            return CONTINUE;
        }
        // TS.Recent (RFC 7323 §4.3, R3): only from a segment at or before Last.ACK.sent. If no ACK
        // is owed, RCV.NXT is Last.ACK.sent.
        if let Some((value, _)) = segment.timestamps
            && f.bits.0 & (Bits::TIMESTAMPS | Bits::ACK_NOW | Bits::ACK_LATER) == Bits::TIMESTAMPS
            && le(seq, next)
            && le(f.ts_recent, value)
        {
            f.ts_recent = value;
        }
        // Second, the RST: only at RCV.NXT exactly; other numbers in the window get a challenge ACK
        // (RFC 5961 §3.2), so that a blind attacker has to hit one number, not a window.
        if flags & RST != 0 {
            class.counters.resets_in += 1;
            if seq != next {
                class.counters.resets_ignored += 1;
                self.challenge(now, flow);
                return CONTINUE;
            }
            match state {
                State::SynReceived => self.finish(now, flow, Reason::Refused),
                // TIME-WAIT assassination (RFC 1337 §3): the RST is ignored, otherwise old segments
                // could reach a new connection.
                State::TimeWait => return CONTINUE,
                _ => self.finish(now, flow, Reason::Reset),
            }
            return DONE;
        }
        // Fourth, the SYN: a challenge ACK (RFC 5961 §4.2). A peer that has restarted resets the
        // old connection in response.
        if flags & SYN != 0 {
            class.counters.unexpected += 1;
            self.challenge(now, flow);
            return CONTINUE;
        }
        // Fifth, the ACK. A segment without one is dropped.
        if flags & ACK == 0 {
            class.counters.unexpected += 1;
            return CONTINUE;
        }
        if state == State::SynReceived {
            if segment.ack != f.snd_nxt {
                class.counters.acks_too_far += 1;
                let (class, key) = (ClassId(f.class), self.core.key(flow));
                self.core.answer_tcp(class, &key, segment.ack, None, RST);
                return CONTINUE;
            }
            f.snd_una = segment.ack;
            f.snd_wnd = u32::from(segment.window) << f.bits.wscale().unwrap_or(0);
            let real = now + self.core.lag;
            let (f, class) = self.core.parts(flow);
            sample_syn(f, class, real, true);
            self.establish(now, flow)?;
        } else {
            self.ack(now, flow, segment, seq)?;
        }
        // RFC 3168 §6.1.3: ECE stays set until the peer's CWR, because a single ACK may be lost.
        if self.core.flows[flow].bits.has(Bits::ECN) {
            if segment.marked {
                self.core.flows[flow].bits.set(Bits::ECE);
                self.core.counters(flow).ecn_marks += 1;
            } else if flags & CWR != 0 {
                self.core.flows[flow].bits.clear(Bits::ECE);
            }
        }
        // The peer is alive: the timers of keepalive and FIN-WAIT-2 start again.
        self.restart_idle_tcp(now, flow);
        // Seventh, the segment text; eighth, the FIN. (Sixth, URG: urgent data is delivered in
        // line, RFC 6093.)
        if payload.is_empty() && flags & FIN == 0 {
            return CONTINUE;
        }
        // A window probe: its octet is not taken, and the ACK repeats the window (RFC 9293
        // §3.8.6.1).
        if !acceptable {
            self.core.counters(flow).out_of_window += 1;
            self.ack_now(flow);
            return CONTINUE;
        }
        self.text(now, flow, seq, payload, flags & FIN != 0)
    }

    /// Processes the ACK in the states after SYN-RECEIVED (RFC 9293 §3.10.7.4, fifth step).
    #[inline]
    fn ack(&mut self, now: Nanos, flow: u32, segment: &Segment<'_>, seq: u32) -> ControlFlow<()> {
        let (f, class) = self.core.parts(flow);
        let ack = segment.ack;
        // RFC 5961 §5.2: it acknowledges data that was never sent, or is older than the largest
        // window. MAX.SND.WND is not stored; the current window replaces it, or 64 KiB if that is
        // larger, because a peer may have closed its window.
        if lt(f.snd_nxt, ack) || lt(ack, f.snd_una.wrapping_sub(f.snd_wnd.max(1 << 16))) {
            class.counters.acks_too_far += 1;
            self.challenge(now, flow);
            return DONE;
        }
        let window = u32::from(segment.window) << f.bits.wscale().unwrap_or(0);
        let advances = lt(f.snd_una, ack);
        let flight = f.flight();
        // A duplicate ACK as RFC 5681 §2 defines it, without SACK. An ACK that answers a window probe
        // is not one, because nothing was lost.
        let duplicate = ack == f.snd_una
            && flight > 0
            && segment.payload.is_empty()
            && !segment.has(FIN)
            && window == f.snd_wnd
            && !f.bits.has(Bits::PERSIST);
        // The window of a newer segment. Records do not store SND.WL1: a segment counts as newer if
        // it acknowledges more, is not old, or opens the window.
        let was = f.snd_wnd;
        if advances || (ack == f.snd_una && (le(f.rcv_nxt, seq) || window > f.snd_wnd)) {
            f.snd_wnd = window;
            class.counters.zero_windows_in += u64::from(window == 0 && was > 0);
        }
        if f.bits.has(Bits::PERSIST) {
            // An answered probe keeps the connection open without limit (RFC 9293 §3.8.6.1,
            // MUST-37).
            f.bits.set_dupacks(0);
            if advances || f.snd_wnd > was {
                f.bits.clear(Bits::PERSIST | Bits::RTX);
                f.bits.set_retries(0);
                if !advances {
                    // The peer did not take the probe's octets: they count as unsent again.
                    f.snd_nxt = f.snd_una;
                    class.counters.sent -= u64::from(flight);
                }
            }
        } else if f.snd_wnd == 0 && ack == f.snd_una && flight > 0 {
            // The peer closed its window over outstanding data. It answers, so this must not count
            // as the last retry (RFC 9293 §3.8.6.1, MUST-37).
            f.bits.set_retries(f.bits.retries().min(class.tunables.retries.saturating_sub(1)));
        }
        // A window probe cannot be acknowledged in part: the rest of it may count as unsent again.
        let sacks =
            !segment.options.is_empty() && f.bits.has(Bits::SACK) && !f.bits.has(Bits::PERSIST);
        let reduce = segment.has(ECE) && advances && f.bits.has(Bits::ECN);
        let wide = f.snd_wnd;
        if wide > was || wide > 0 && flight == 0 {
            self.core.enqueue(flow);
        }
        if let Some(extra) = self.core.extra(flow)
            && extra.widest > 0
        {
            extra.widest = wide.max(extra.widest);
        }
        let new_sack = sacks && self.note_sack(flow, segment);
        if reduce {
            self.ecn_reduce(now, flow);
        }
        if advances {
            self.advance_una(now, flow, segment, flight)?;
        }
        self.core.counters(flow).duplicate_acks += u64::from(duplicate || new_sack);
        // RFC 6675 §2: new SACK blocks make any segment a duplicate ACK. Its window differs from that
        // of the last one, for example, while the peer adapts its buffer.
        if new_sack || duplicate && !self.core.flows[flow].bits.has(Bits::SACK) {
            self.duplicate_ack(now, flow);
        }
        CONTINUE
    }

    #[inline]
    fn advance_una(
        &mut self,
        now: Nanos,
        flow: u32,
        segment: &Segment<'_>,
        flight: u32,
    ) -> ControlFlow<()> {
        let ack = segment.ack;
        let lag = self.core.lag;
        let (f, class) = self.core.parts(flow);
        let acked = ack.wrapping_sub(f.snd_una);
        f.snd_una = ack;
        let state = f.tcp_state();
        let fin_sent = matches!(state, State::FinWait1 | State::Closing | State::LastAck);
        let fin_acked = fin_sent && ack == f.snd_nxt;
        let octets = acked - u32::from(fin_acked);
        class.counters.acked += u64::from(octets);
        // Round-trip time: from timestamps (RFC 7323 §4.1), or from the one timed segment (Karn's
        // algorithm).
        let ms = if f.bits.has(Bits::TIMESTAMPS) {
            segment
                .timestamps
                .filter(|(_, echo)| *echo != 0)
                .map(|(_, echo)| stamp(now + lag).wrapping_sub(echo))
        } else if f.bits.has(Bits::TIMING) && le(f.ts_recent, ack) {
            f.bits.clear(Bits::TIMING);
            Some(u32::from((stamp(now + lag) as u16).wrapping_sub(f.rtt_sent)))
        } else {
            None
        };
        // More than 18 min means that the echo is not from this clock. Without a sample the backoff
        // stays (RFC 6298 §5, Karn's algorithm).
        match ms.filter(|ms| *ms < 1 << 20) {
            Some(ms) => Class::sample(&mut class.samples, f, micros(ms)),
            None => f.keep_backoff(f.kept_backoff() + f.bits.retries()),
        }
        f.bits.set_retries(0);
        self.core.drop_pieces(flow, ack);
        self.congestion_ack(now, flow, acked, flight);
        let all = self.core.first_piece(flow).piece.len == 0;
        let (f, class) = self.core.parts(flow);
        if f.flight() == 0 {
            f.bits.clear(Bits::RTX);
            f.rtx_at = tick(now);
            if !all || f.bits.has(Bits::CLOSE) {
                self.core.enqueue(flow);
            }
            self.start_idle(now, flow);
        } else {
            // RFC 6298 §5.3: new data was acknowledged, so the timer restarts.
            let rto = rto(f, class);
            self.core.start_rtx(now, flow, rto);
            self.core.enqueue(flow);
        }
        if octets > 0 {
            self.notify(now, flow, Event::Acknowledged { octets, all });
            self.aborted(now, flow)?;
        }
        match state {
            State::FinWait1 if fin_acked => {
                self.core.flows[flow].bits.set_state(State::FinWait2);
                self.start_idle(now, flow);
            }
            State::Closing if fin_acked => return self.time_wait_begins(now, flow),
            State::LastAck if fin_acked => {
                self.finish(now, flow, Reason::Closed);
                return DONE;
            }
            _ => (),
        }
        CONTINUE
    }

    /// Seventh and eighth: `payload` at `seq`, and a FIN after it if `fin`. At least one of its
    /// numbers is in the window.
    fn text(
        &mut self,
        now: Nanos,
        flow: u32,
        seq: u32,
        payload: &[u8],
        fin: bool,
    ) -> ControlFlow<()> {
        let (f, class) = self.core.parts(flow);
        if matches!(
            f.tcp_state(),
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait
        ) {
            // After its FIN the peer cannot send data: "ignore the segment text" (RFC 9293
            // §3.10.7.4).
            class.counters.unexpected += 1;
            return CONTINUE;
        }
        let (rcv_nxt, edge) = (f.rcv_nxt, f.rcv_adv);
        // Trims the segment to the new part inside the window.
        let old = (distance(seq, rcv_nxt) as usize).min(payload.len());
        let room = distance(max(seq, rcv_nxt), edge) as usize;
        let new = &payload[old..];
        let fits = new.len() <= room;
        let new = &new[..new.len().min(room)];
        let at = seq.wrapping_add(old as u32);
        let fin_at = (fin && fits).then(|| seq.wrapping_add(payload.len() as u32));
        if lt(rcv_nxt, at) {
            self.out_of_order(flow, at, new, fin_at);
            return CONTINUE;
        }
        if new.is_empty() && fin_at.is_none() {
            class.counters.duplicate_segments += 1;
            self.ack_now(flow);
            return CONTINUE;
        }
        if !new.is_empty() {
            self.deliver(now, flow, new)?;
        }
        let mut fin_at = fin_at;
        let fills = self.core.extra_ref(flow).is_some_and(|e| !e.reassembly.is_empty());
        if fills {
            while let Some((old, octets)) = self.take_contiguous(flow) {
                self.deliver(now, flow, &octets[old..])?;
            }
            fin_at = fin_at.or(self.core.extra_ref(flow).and_then(|e| e.reassembly.fin()));
        }
        // A segment that fills a gap is acknowledged at once (RFC 5681 §4.2): a sender in recovery
        // waits for the ACK.
        if fills {
            self.ack_now(flow);
        } else {
            self.acknowledge_later(now, flow, payload.len(), false);
        }
        if fin_at == Some(self.core.flows[flow].rcv_nxt) {
            return self.fin(now, flow);
        }
        CONTINUE
    }

    #[inline]
    fn deliver(&mut self, now: Nanos, flow: u32, octets: &[u8]) -> ControlFlow<()> {
        let (f, class) = self.core.parts(flow);
        f.rcv_nxt = f.rcv_nxt.wrapping_add(octets.len() as u32);
        class.counters.delivered += octets.len() as u64;
        self.notify(now, flow, Event::Received(octets));
        self.aborted(now, flow)
    }

    #[cold]
    fn out_of_order(&mut self, flow: u32, at: u32, octets: &[u8], fin_at: Option<u32>) {
        let class = self.core.class(flow);
        let limit = u64::from(class.tunables.reassembly);
        // The flow may use its own limit, as far as the stack's limit has room left.
        let left = self.core.settings.reassembly.saturating_sub(self.core.reassembly_used);
        let ahead = &mut self.core.make_extra(flow).reassembly;
        let before = ahead.cost();
        let dropped = ahead.insert(at, octets, limit.min(u64::from(before) + left) as u32);
        let after = ahead.cost();
        // A FIN after dropped octets is dropped too: taken at its position, it would end the stream
        // early.
        if let Some(fin_at) = fin_at
            && dropped == 0
        {
            ahead.note_fin(fin_at);
        }
        // Less than before if two runs were joined.
        self.core.reassembly_used =
            self.core.reassembly_used + u64::from(after) - u64::from(before);
        let counters = self.core.counters(flow);
        counters.out_of_order += 1;
        counters.out_of_order_octets += octets.len() as u64;
        counters.reassembly_drops += dropped as u64;
        // Acknowledges at once (RFC 5681 §4.2), because the sender counts duplicate ACKs.
        self.ack_now(flow);
    }

    fn take_contiguous(&mut self, flow: u32) -> Option<(usize, Vec<u8>)> {
        let rcv_nxt = self.core.flows[flow].rcv_nxt;
        let extra = self.core.extra(flow)?;
        let before = extra.reassembly.cost();
        let taken = extra.reassembly.take(rcv_nxt);
        let freed = before - extra.reassembly.cost();
        self.core.reassembly_used -= u64::from(freed);
        taken
    }

    // Processes a FIN (RFC 9293 §3.10.7.4, eighth step).
    fn fin(&mut self, now: Nanos, flow: u32) -> ControlFlow<()> {
        let f = &mut self.core.flows[flow];
        f.rcv_nxt = f.rcv_nxt.wrapping_add(1);
        // A FIN needs no buffer: if the window is full, it grows by one number for the FIN.
        f.rcv_adv = max(f.rcv_adv, f.rcv_nxt);
        let state = f.tcp_state();
        let all_acked = f.flight() == 0;
        let next = match state {
            State::Established | State::SynReceived => State::CloseWait,
            State::FinWait1 => State::Closing,
            state => state,
        };
        f.bits.set_state(next);
        self.ack_now(flow);
        self.notify(now, flow, Event::PeerClosed);
        self.aborted(now, flow)?;
        match state {
            State::FinWait2 => self.time_wait_begins(now, flow),
            State::FinWait1 if all_acked => self.time_wait_begins(now, flow),
            _ => CONTINUE,
        }
    }

    /// Both sides have closed: the flow ends for the application, and its record remains for
    /// TIME-WAIT.
    fn time_wait_begins(&mut self, now: Nanos, flow: u32) -> ControlFlow<()> {
        self.notify_gone(now, flow, Reason::Closed);
        if self.core.flows[flow].has_extra() {
            self.core.release_extra(flow);
        }
        self.core.active -= 1;
        self.core.time_wait += 1;
        let (f, class) = self.core.parts(flow);
        class.counters.active -= 1;
        class.counters.time_wait += 1;
        f.bits.set_state(State::TimeWait);
        f.bits.clear(Bits::APP | Bits::HEAD | Bits::PROBE | Bits::PERSIST);
        // If an ACK is owed, it is the last one; TIME-WAIT starts when it leaves.
        if f.bits.has(Bits::ACK_NOW) {
            f.bits.clear(Bits::RTX);
            return CONTINUE;
        }
        self.leave_or_compact(now, flow);
        DONE
    }

    fn start_time_wait(&mut self, now: Nanos, flow: u32) {
        let wait = self.core.class(flow).time_wait;
        self.core.start_rtx(now, flow, wait);
    }

    /// Starts the timer that runs while nothing is outstanding: FIN-WAIT-2 or keepalive.
    #[inline(always)]
    pub(crate) fn start_idle(&mut self, now: Nanos, flow: u32) {
        let (f, class) = self.core.parts(flow);
        let wait = idle_ticks(f, class);
        if wait > 0 {
            self.core.start_rtx(now, flow, wait);
        }
    }

    #[inline]
    fn restart_idle_tcp(&mut self, now: Nanos, flow: u32) {
        let f = &mut self.core.flows[flow];
        if f.flight() == 0
            && f.bits.has(Bits::RTX)
            && !f.bits.has(Bits::PERSIST)
            && f.tcp_state() != State::TimeWait
        {
            f.bits.set_retries(0);
            self.start_idle(now, flow);
        }
    }

    #[inline]
    pub(crate) fn ack_now(&mut self, flow: u32) {
        self.core.flows[flow].bits.set(Bits::ACK_NOW);
        self.core.enqueue(flow);
    }

    /// Queues an ACK as a separate packet, which later segments cannot merge with.
    #[cold]
    fn ack_separately(&mut self, now: Nanos, flow: u32) {
        let options = self.options(now, flow);
        let (window, edge) = self.window(flow);
        let key = self.core.key(flow);
        let f = &self.core.flows[flow];
        let (seq, ack, class) = (f.snd_nxt, f.rcv_nxt, ClassId(f.class));
        let header = TcpHeader {
            local_port: key.local_port,
            remote_port: key.remote_port,
            seq,
            ack,
            flags: ACK,
            window,
        };
        if !self.core.answer_with(class, &key, &header, &options) {
            self.ack_now(flow);
            return;
        }
        let (f, class) = self.core.parts(flow);
        f.rcv_adv = edge;
        f.bits.clear(Bits::ACK_NOW | Bits::ACK_LATER);
        class.counters.acks_out += 1;
    }

    /// Answers an unacceptable segment: always if it has data; otherwise within the limit on
    /// challenge ACKs, so that a flood of old segments causes no flood of ACKs (RFC 5961 §7).
    fn answer_with_ack(&mut self, now: Nanos, flow: u32, octets: bool) {
        if octets || self.core.may_challenge(now) {
            self.ack_now(flow);
        } else {
            self.core.counters(flow).acks_limited += 1;
        }
    }

    #[cold]
    fn challenge(&mut self, now: Nanos, flow: u32) {
        if self.core.may_challenge(now) {
            self.core.counters(flow).challenge_acks += 1;
            self.ack_now(flow);
        } else {
            self.core.counters(flow).acks_limited += 1;
        }
    }

    /// Adds the plausible SACK blocks to the scoreboard. Returns whether any is new.
    #[cold]
    fn note_sack(&mut self, flow: u32, segment: &Segment<'_>) -> bool {
        let f = &self.core.flows[flow];
        let (una, nxt) = (max(f.snd_una, segment.ack), f.snd_nxt);
        let mut new_sack = false;
        let (blocks, n) = sack_blocks(segment.options);
        for &(left, right) in &blocks[..n] {
            // A block below SND.UNA is a D-SACK (RFC 2883) or old.
            if lt(left, right) && lt(una, left) && le(right, nxt) {
                new_sack |= self.core.make_extra(flow).sacked.insert(left, right);
            }
        }
        new_sack
    }
}

/// The remaining steps for a segment after [`receive_at_once`].
struct Next {
    /// Ticks of the timer to start, which runs while nothing is outstanding; 0: none.
    idle: u32,
    /// The flow is to be queued, and is marked as such.
    queue: bool,
    /// The flow has an acknowledgment to send later.
    delays_ack: bool,
    /// See [`crate::core::Core::ack_overdue`].
    overdue: bool,
    /// The last acknowledgment has come: the flow is closed.
    finish: bool,
    /// Both sides have closed: TIME-WAIT begins.
    ends: bool,
}

/// [`Stack::receive_next`] for a segment that leaves nothing outstanding and nothing to send, if the
/// application handles all of it at once. `None`: nothing has changed.
#[inline(always)]
fn receive_at_once<A: Application>(
    (app, pieces, f, class): (&mut A, &mut Pieces, &mut Flow<A::State>, &mut Class),
    (now, lag): (Nanos, Nanos),
    segment: &Segment<'_>,
    (bits, acked): (Bits, u32),
) -> Option<Next> {
    let real = now + lag;
    let (row, state) = (f.aside, bits.state());
    let opens = state == State::SynReceived;
    let fin_sent = matches!(state, State::FinWait1 | State::FinWait2 | State::LastAck);
    let fin_acked = fin_sent && acked > 0;
    let sent =
        row == NO_PIECE || pieces.get(row).end() == segment.ack.wrapping_sub(u32::from(fin_acked));
    // A FIN that has to follow is left to the slower path.
    if !sent || bits.has(Bits::ABORT) || bits.has(Bits::CLOSE) && !fin_sent {
        return None;
    }
    let octets = acked - u32::from(opens) - u32::from(fin_acked);
    let (received, fin) = (segment.payload, segment.has(FIN));
    let mut deed = Deed::default();
    if opens || fin || octets > 0 || !received.is_empty() {
        let events =
            Events { established: opens, acknowledged: octets > 0, received, peer_closed: fin };
        deed = app.at_once(&mut f.state, FlowId(f.number), real, events)?;
    }
    let mut next = Next {
        idle: 0,
        queue: false,
        delays_ack: false,
        overdue: false,
        finish: fin_acked && state == State::LastAck,
        ends: false,
    };
    if row != NO_PIECE {
        f.aside = NO_PIECE;
        pieces.give(row);
    }
    class.counters.acked += u64::from(octets);
    f.snd_una = segment.ack;
    if next.finish {
        return Some(next);
    }
    if opens {
        sample_syn(f, class, real, true);
        opened(f, class, now);
        next.idle = class.keepidle;
    } else {
        f.bits.reset_streaks();
        if acked > 0 {
            sample_and_grow(f, class, segment, real, (acked, acked));
            f.bits.clear(Bits::RTX);
            f.rtx_at = tick(now);
            if fin_acked {
                f.bits.set_state(State::FinWait2);
            }
        }
        // The timer that runs already restarts.
        if acked > 0 || bits.has(Bits::RTX) {
            next.idle = idle_ticks(f, class);
        }
    }
    if !received.is_empty() {
        f.rcv_nxt = f.rcv_nxt.wrapping_add(received.len() as u32);
        class.counters.delivered += received.len() as u64;
        let second = is_second(f, received.len());
        if let Some(overdue) = owe_ack(f, class, (now, lag), second, segment.has(PSH)) {
            f.bits.set(Bits::ACK_NOW);
            (next.queue, next.overdue) = (true, overdue);
        }
    }
    next.queue |= act(f, pieces, deed);
    if fin {
        f.rcv_nxt = f.rcv_nxt.wrapping_add(1);
        // A FIN needs no buffer: if the window is full, it grows by one number for the FIN.
        f.rcv_adv = max(f.rcv_adv, f.rcv_nxt);
        next.ends = f.tcp_state() == State::FinWait2;
        if !next.ends {
            f.bits.set_state(State::CloseWait);
        }
        f.bits.set(Bits::ACK_NOW);
        next.queue = true;
    }
    next.queue &= !f.bits.has(Bits::QUEUED);
    f.bits.0 |= if next.queue { Bits::QUEUED } else { 0 };
    next.delays_ack = f.bits.delays_ack();
    Some(next)
}

/// Does what the application wants after a segment. The flow has nothing to send until then.
/// Returns whether it has now.
#[inline(always)]
fn act<S>(f: &mut Flow<S>, pieces: &mut Pieces, deed: Deed) -> bool {
    if let Some(piece) = deed.send {
        debug_assert!(piece.len > 0 && f.aside == NO_PIECE && !f.bits.has(Bits::CLOSE));
        f.aside = pieces.take(Placed { at: f.snd_nxt, piece });
    }
    f.bits.0 |= if deed.close { Bits::CLOSE } else { 0 };
    deed.send.is_some() || deed.close
}

/// Applies a SYN: numbers, window, options. `ecn`: the peer supports it.
#[inline(always)]
fn take_syn<S>(
    f: &mut Flow<S>,
    class: &Class,
    segment: &Segment<'_>,
    options: &Options,
    ecn: bool,
) {
    f.rcv_nxt = segment.seq.wrapping_add(1);
    f.rcv_adv = f.rcv_nxt.wrapping_add(class.window.min(u16::MAX.into()));
    // The window of a SYN is never scaled (RFC 7323 §2.2).
    f.snd_wnd = segment.window.into();
    // An announced MSS below the minimum counts as the minimum.
    if class.tunables.peer_mss {
        let default = if f.bits.has(Bits::V6) { DEFAULT_MSS6 } else { DEFAULT_MSS4 };
        f.mss = f.mss.min(options.mss.unwrap_or(default).max(MIN_MSS));
    }
    f.bits.set_wscale(options.wscale.filter(|_| class.tunables.wscale.is_some()));
    // Options that the peer does not offer are not used.
    f.bits.clear(
        if options.sack_permitted { 0 } else { Bits::SACK } | if ecn { 0 } else { Bits::ECN },
    );
    match options.timestamps {
        Some((value, _)) if f.bits.has(Bits::TIMESTAMPS) => f.ts_recent = value,
        _ => f.bits.clear(Bits::TIMESTAMPS),
    }
}

/// Samples the round-trip time of a SYN that was sent once (Karn's algorithm).
#[inline(always)]
fn sample_syn<S>(f: &mut Flow<S>, class: &mut Class, real: Nanos, acked: bool) {
    if acked && f.bits.has(Bits::TIMING) && f.bits.retries() == 0 {
        let ms = (stamp(real) as u16).wrapping_sub(f.rtt_sent);
        Class::sample(&mut class.samples, f, micros(ms.into()));
    }
    f.bits.clear(Bits::TIMING);
}

/// A flow whose handshake is complete.
#[inline(always)]
fn opened<S>(f: &mut Flow<S>, class: &mut Class, now: Nanos) {
    // One segment if the SYN was lost (RFC 5681 §3.1), because congestion may be the cause.
    let lost = f.bits.retries() > 0;
    f.cwnd = if lost { f.mss.into() } else { class.initial_window(f.bits.has(Bits::V6), f.mss) };
    f.bits.set_retries(0);
    f.bits.clear(Bits::RTX | Bits::HEAD | Bits::TIMING);
    f.rtx_at = tick(now);
    f.bits.set_state(State::Established);
    class.counters.established += 1;
}

/// Samples the round-trip time by a segment's echo, and lets the congestion window grow in slow
/// start. `acked` of `flight` octets are acknowledged.
#[inline(always)]
fn sample_and_grow<S>(
    f: &mut Flow<S>,
    class: &mut Class,
    segment: &Segment<'_>,
    real: Nanos,
    (acked, flight): (u32, u32),
) {
    if let Some((_, echo)) = segment.timestamps
        && f.bits.has(Bits::TIMESTAMPS)
        && let Some(us) = echoed(real, echo)
    {
        Class::sample(&mut class.samples, f, us);
    }
    let limit = class.tunables.abc_limit;
    if congestion::grows(f.cwnd, flight, f.snd_wnd, limit) {
        let counted = congestion::slow_start(acked, limit, f.mss.into());
        f.cwnd = f.cwnd.saturating_add(counted).min(1 << 30);
    }
}

/// Whether `octets` are the second segment since the last acknowledgment, or as long as two.
#[inline(always)]
fn is_second<S>(f: &Flow<S>, octets: usize) -> bool {
    f.bits.has(Bits::ACK_LATER) || octets >= 2 * usize::from(f.mss)
}

/// Notes that received octets are to be acknowledged: `second` is acknowledged at once. `None`:
/// later; otherwise whether [`MAX_UNACKED`] octets are due.
#[inline(always)]
fn owe_ack<S>(
    f: &mut Flow<S>,
    class: &Class,
    (now, lag): (Nanos, Nanos),
    second: bool,
    push: bool,
) -> Option<bool> {
    let delay = class.delayed_ack;
    if delay == 0 || second || push && class.tunables.ack_push {
        let room = f.rcv_adv.wrapping_sub(f.rcv_nxt);
        return Some(room.saturating_add(MAX_UNACKED) <= class.window);
    }
    if !f.bits.has(Bits::ACK_NOW) {
        f.ack_at = (tick(now).wrapping_add(lag_ticks(lag, delay) + 1)) as u16;
        f.bits.set(Bits::ACK_LATER);
    }
    None
}

/// Ticks of the timer that runs while nothing is outstanding, FIN-WAIT-2 or keepalive; 0: none.
#[inline(always)]
fn idle_ticks<S>(f: &Flow<S>, class: &Class) -> u32 {
    if f.tcp_state() == State::FinWait2 { class.fin_wait } else { class.keepidle }
}

/// Whether a segment is a SYN that may replace a flow in TIME-WAIT (RFC 9293 §3.10.7.4, RFC 6191).
/// The tuple describes the old flow: has timestamps, TS.Recent, RCV.NXT.
fn is_new((stamps, ts_recent, rcv_nxt): (bool, u32, u32), segment: &Segment<'_>) -> bool {
    let is_syn = segment.flags & (SYN | ACK | RST | FIN) == SYN;
    let newer = match segment.timestamps {
        Some((value, _)) if stamps => {
            lt(ts_recent, value) || value == ts_recent && lt(rcv_nxt, segment.seq)
        }
        _ => lt(rcv_nxt, segment.seq),
    };
    is_syn && newer
}

#[inline]
fn count_in(counters: &mut Counters, octets: usize) {
    counters.segments_in += 1;
    counters.octets_in += octets as u64;
}

/// The round-trip time that the echo of a timestamp gives, microseconds. `None`: 0 is not an echo
/// (RFC 7323 §3.2), and more than 18 min means that it is not from this clock.
#[inline(always)]
fn echoed(real: Nanos, echo: u32) -> Option<u32> {
    let steps = stamp(real).wrapping_sub(echo);
    (echo != 0 && steps < 1 << 20).then_some(steps).map(micros)
}

/// The sample of a round-trip time from steps of [`stamp`], 1048.6 us each: at least half a step,
/// because 0 means "no sample".
#[inline(always)]
fn micros(steps: u32) -> u32 {
    (steps * 1049).max(524)
}

/// The timestamp clock, in steps of 2^20 ns (1.05 ms), within the 1 ms to 1 s of RFC 7323 §5.4.
/// Never 0, because an echo of 0 means "none".
#[inline]
pub(crate) fn stamp(now: Nanos) -> u32 {
    ((now.0 >> 20) as u32).max(1)
}
