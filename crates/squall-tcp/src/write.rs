//! Chooses the next packet of a flow: SYNs, retransmissions, new data, probes, acknowledgments.

use squall_units::{Cut, Nanos};
use squall_wire::{
    checksum,
    tcp_flags::{ACK, CWR, ECE, FIN, PSH, SYN},
};

use crate::{
    Application, ClassId, OptionOrder, Output, Tunables, Tuple,
    arrives::stamp,
    congestion::initial_window,
    core::{addresses, advertised, lag_ticks, rto},
    extra::Recovery,
    flow::{Bits, Flow, State},
    packet::{
        ALIGNED_STAMPS, Addresses, IPV4, IPV6, Key, OptionWords, STAMPED, SYN_HEADER, TCP,
        TCP_HEADER, TcpHeader, UDP, UDP_HEADER, ip_len, write_ip, write_tcp, write_tcp_with,
        write_udp,
    },
    seq::{distance, lt, max, min},
    stack::{FastWrite, Stack, Unsent, Written},
    wheel::{tick, ticks},
};

/// Maximum number of packets that a flow may send before other flows get their turn: a bulk
/// transfer must not delay all others by a whole window.
const TURN: usize = 32;

/// ECN-capable transport, ECT(0) (RFC 3168 §5).
const ECT0: u8 = 2;

/// Why a segment is sent, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    New,
    Rto,
    Fast,
    Sack,
    Probe,
}

impl<A: Application> Stack<A> {
    /// Sends the packets that `flow` may send now.
    #[inline(never)]
    pub(crate) fn write(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Written {
        let mut packets = 0;
        let idle = self.core.flows[flow].flight() == 0;
        loop {
            if packets >= TURN {
                return Written { packets, left: Unsent::Turn };
            }
            match self.write_one(now, flow, idle, out) {
                Some(true) => packets += 1,
                Some(false) => return Written { packets, left: Unsent::Nothing },
                None => return Written { packets, left: Unsent::Room },
            }
            if self.is_done(flow) {
                return Written { packets, left: Unsent::Nothing };
            }
        }
    }

    /// A SYN, and a fast path for most flows: the rest of the data in one segment, or an
    /// acknowledgment, while there are no losses. Has the same effect as the slow path; changes
    /// nothing if it returns [`FastWrite::Slow`] or [`FastWrite::NoRoom`]. `clock`: that of
    /// timestamps.
    #[inline(always)]
    pub(crate) fn write_fast<const V6: bool>(
        &mut self,
        now: Nanos,
        clock: u32,
        flow: u32,
        out: &mut impl Output,
    ) -> FastWrite {
        let core = &mut self.core;
        let f = &mut core.flows.0[flow as usize];
        let bits = f.bits;
        let state = bits.state();
        // Everything that this path does not handle; the slow path follows the order of the RFC.
        let odd = bits.has(Bits::SLOW_PATH) || bits.dupacks() > 0 || f.has_extra();
        if odd || !(State::Established..=State::TimeWait).contains(&state) {
            return match state {
                State::SynSent | State::SynReceived if bits.has(Bits::HEAD) => {
                    self.write_syn::<V6>(now, clock, flow, out)
                }
                _ => FastWrite::Slow,
            };
        }
        let class = &mut core.classes[usize::from(f.class)];
        let stamps = bits.has(Bits::TIMESTAMPS);
        let header = if stamps { STAMPED } else { TCP_HEADER };
        let flight = f.flight();
        let first = core.pieces.get(f.aside);
        let (mut len, mut fin) = (0, false);
        if matches!(state, State::Established | State::CloseWait) {
            fin = bits.has(Bits::CLOSE);
            if first.piece.len > 0 {
                len = first.end().wrapping_sub(f.snd_nxt);
            }
            if len > 0 || fin {
                let whole = TCP_HEADER as u32 + u32::from(f.mss) - header as u32;
                let outstanding = flight.wrapping_add(len);
                let window = f.snd_wnd.min(class.send_buffer);
                let fits = len <= whole && outstanding < window && outstanding <= f.cwnd;
                let at_once = class.tunables.no_delay || fin || flight == 0 || len == whole;
                // A flow whose window is above the initial one may have been idle, and must then
                // restart (RFC 5681 §4.1); the slow path checks the time.
                let idle = flight == 0 && f.cwnd > class.initial_window(V6, f.mss);
                if !fits || !at_once || idle {
                    return FastWrite::Slow;
                }
            }
        }
        let numbers = len + u32::from(fin);
        if numbers == 0 && !bits.has(Bits::ACK_NOW) {
            return FastWrite::Slow;
        }
        let addresses = addresses(V6, f.packed(), &core.addresses6);
        let (local_port, remote_port) = (f.local_port, f.remote_port);
        let key = Key { addresses, local_port, remote_port, udp: false };
        let ip = ip_len(addresses);
        let headers = ip + header;
        let octets = headers + len as usize;
        let Some(packet) = room(out, ClassId(f.class), &key, octets) else {
            return FastWrite::NoRoom;
        };
        let packet = &mut packet[..octets];
        let mut sum = 0;
        if len > 0 {
            let offset = f.snd_nxt.wrapping_sub(first.at);
            let place = &mut packet[headers..];
            sum = match self.app.fixed(first.piece) {
                Some((octets, sum)) if offset == 0 && octets.len() == place.len() => {
                    place.copy_from_slice(octets);
                    sum
                }
                _ => {
                    self.app.copy(&f.state, &key.tuple(), first.piece, offset, place);
                    checksum::sum(place)
                }
            };
        }
        core.ip_id = core.ip_id.wrapping_add(1);
        let (window, advertised) = class.advertised[usize::from(bits.wscale().is_some())];
        let header = TcpHeader {
            local_port,
            remote_port,
            seq: f.snd_nxt,
            ack: f.rcv_nxt,
            flags: ACK | if len > 0 { PSH } else { 0 } | if fin { FIN } else { 0 },
            window,
        };
        let segment = &mut packet[ip..];
        let pseudo = pseudo(f, addresses);
        if stamps {
            let stamps = [ALIGNED_STAMPS, clock, f.ts_recent];
            write_tcp_with(segment, pseudo, &header, stamps, sum);
        } else {
            write_tcp_with(segment, pseudo, &header, [], sum);
        }
        let (tos, ttl) = (class.tunables.tos, class.tunables.ttl);
        write_ip(packet, addresses, (TCP, pseudo), tos, ttl, core.ip_id);
        // An advertised edge is never withdrawn (RFC 9293 §3.8.6, SHLD-14), even where rounding to
        // the window scale would.
        f.rcv_adv = max(f.rcv_adv, f.rcv_nxt.wrapping_add(advertised));
        f.bits.clear(Bits::ACK_NOW | Bits::ACK_LATER | Bits::QUEUED);
        let counters = &mut class.counters;
        counters.segments_out += 1;
        counters.octets_out += octets as u64;
        if numbers == 0 {
            counters.acks_out += 1;
            if state == State::TimeWait {
                self.leave_or_compact(now, flow);
            }
            return FastWrite::Sent;
        }
        counters.sent += u64::from(len);
        f.snd_nxt = f.snd_nxt.wrapping_add(numbers);
        if fin {
            f.bits.set_state(if state == State::Established {
                State::FinWait1
            } else {
                State::LastAck
            });
        }
        // Without timestamps one segment at a time is timed (RFC 6298 §3).
        if !bits.has(Bits::TIMESTAMPS | Bits::TIMING) {
            f.bits.set(Bits::TIMING);
            (f.ts_recent, f.rtt_sent) = (f.snd_nxt, clock as u16);
        }
        // RFC 6298 §5.1: a running timer keeps its deadline.
        if flight == 0 || !bits.has(Bits::RTX) {
            f.bits.set_retries(0);
            let at = f.start_rtx(now, core.lag, rto(f, class));
            let number = f.number;
            core.wake_number(now, number, at);
        }
        FastWrite::Sent
    }

    /// Whether nothing can be left to send. Saves a second, empty pass, which most flows would
    /// otherwise need, because they send one segment at a time.
    #[inline]
    fn is_done(&self, flow: u32) -> bool {
        let f = &self.core.flows[flow];
        let first = self.core.first_piece(flow);
        let sent = first.piece.len == 0 || first.end() == f.snd_nxt;
        let plain = !f.has_extra() && !f.bits.has(Bits::ACK_NOW | Bits::HEAD | Bits::PROBE);
        plain
            && sent
            && (!f.bits.has(Bits::CLOSE)
                || !matches!(f.tcp_state(), State::Established | State::CloseWait))
    }

    /// Sends the next packet. Returns whether there was one; `None` if there is no room.
    #[inline]
    fn write_one(
        &mut self,
        now: Nanos,
        flow: u32,
        idle: bool,
        out: &mut impl Output,
    ) -> Option<bool> {
        let f = &self.core.flows[flow];
        let (bits, plain) = (f.bits, !f.has_extra());
        match bits.state() {
            State::Closed => Some(false),
            State::Udp => self.write_datagram(now, flow, out),
            State::SynSent | State::SynReceived | State::TimeWait => self.write_ack(now, flow, out),
            _ if bits.has(Bits::PROBE) => {
                self.write_probe(now, flow, out)?;
                Some(true)
            }
            state => {
                if !plain && self.is_paced(now, flow) {
                    return self.write_ack(now, flow, out);
                }
                if (!plain || bits.has(Bits::HEAD)) && self.write_retransmission(now, flow, out)? {
                    return Some(true);
                }
                let may = matches!(state, State::Established | State::CloseWait);
                if may && self.write_new(now, flow, idle, out)? {
                    return Some(true);
                }
                self.write_ack(now, flow, out)
            }
        }
    }

    fn write_ack(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<bool> {
        if !self.core.flows[flow].bits.has(Bits::ACK_NOW) {
            return Some(false);
        }
        let seq = self.core.flows[flow].snd_nxt;
        let options = self.options(now, flow);
        self.write_segment(flow, out, seq, 0, &options, Kind::New)?;
        self.core.counters(flow).acks_out += 1;
        if self.core.flows[flow].tcp_state() == State::TimeWait {
            self.leave_or_compact(now, flow);
        }
        Some(true)
    }

    /// Releases the record of a flow in TIME-WAIT once its last acknowledgment has left: for the
    /// rest of TIME-WAIT a third of a record suffices ([`crate::waits`]).
    #[inline]
    pub(crate) fn leave_or_compact(&mut self, now: Nanos, flow: u32) {
        self.core.flows[flow].bits.clear(Bits::QUEUED);
        if self.core.class(flow).time_wait == 0 {
            self.core.release(flow);
        } else {
            self.core.compact(now, flow);
        }
    }

    /// Sends a window probe: as much data as the window allows, but at least one octet (RFC 9293
    /// §3.8.6.1). Outside of persist mode, sends a keepalive probe: an old sequence number without
    /// data (§3.8.4), because only an unacceptable empty segment is answered.
    fn write_probe(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<()> {
        let f = &self.core.flows[flow];
        let options = self.options(now, flow);
        let most = u32::from(f.mss) - options.octets() as u32;
        let available = self.core.stream_end(flow).wrapping_sub(f.snd_nxt);
        let (seq, octets) = match f.flight() {
            _ if !f.bits.has(Bits::PERSIST) => (f.snd_una.wrapping_sub(1), 0),
            0 if available == 0 => (f.snd_una.wrapping_sub(1), 0),
            0 => (f.snd_nxt, available.min(f.snd_wnd).clamp(1, most)),
            flight => (f.snd_una, flight),
        };
        let new = octets > 0 && f.flight() == 0;
        self.write_segment(flow, out, seq, octets, &options, Kind::Probe)?;
        let (f, class) = self.core.parts(flow);
        f.bits.clear(Bits::PROBE);
        if new {
            f.snd_nxt = f.snd_nxt.wrapping_add(octets);
            class.counters.sent += u64::from(octets);
        }
        Some(())
    }

    /// Sends the next retransmission, if one is due.
    #[inline(never)]
    fn write_retransmission(
        &mut self,
        now: Nanos,
        flow: u32,
        out: &mut impl Output,
    ) -> Option<bool> {
        let f = &self.core.flows[flow];
        let (una, nxt, cwnd) = (f.snd_una, f.snd_nxt, f.cwnd);
        let mss = u32::from(f.mss);
        if f.flight() == 0 {
            self.core.flows[flow].bits.clear(Bits::HEAD);
            return Some(false);
        }
        let recovery = self.core.extra_ref(flow).map_or(Recovery::None, |e| e.recovery);
        let kind = match recovery {
            Recovery::Loss => Kind::Rto,
            Recovery::Sack => Kind::Sack,
            _ => Kind::Fast,
        };
        if self.core.flows[flow].bits.has(Bits::HEAD) {
            let end = self
                .core
                .extra_ref(flow)
                .and_then(|e| e.sacked.hole(una, nxt))
                .map_or(nxt, |h| h.1);
            let to = self.write_range(now, flow, out, una, end, kind)?;
            self.core.flows[flow].bits.clear(Bits::HEAD);
            if let Some(extra) = self.core.extra(flow) {
                extra.high_rxt = max(extra.high_rxt, to);
            }
            // Restarts the timer for a retransmission in fast recovery, so that it does not expire
            // during the recovery (RFC 6298 §5.1; RFC 6675 §5.1, step 4.3).
            let rto = self.core.rto(flow);
            if !self.core.flows[flow].bits.has(Bits::RTX) || recovery != Recovery::Loss {
                self.core.start_rtx(now, flow, rto);
            }
            return Some(true);
        }
        let Some(extra) = self.core.extra_ref(flow) else { return Some(false) };
        if !matches!(recovery, Recovery::Sack | Recovery::Loss) {
            return Some(false);
        }
        let (edge, pipe) = (extra.lost_below(una, mss), extra.pipe(una, nxt, mss));
        let highest = extra.sacked.highest().unwrap_or(una);
        if pipe.saturating_add(mss) > cwnd && pipe > 0 {
            return Some(false);
        }
        // NextSeg (RFC 6675 §4), rule 1: the first lost octets that were not retransmitted.
        let from = max(extra.high_rxt, una);
        let first = extra.sacked.hole(from, edge);
        // Rule 3 if there is no new data; rule 2 (new data) is up to the caller.
        let has_new = lt(nxt, self.core.stream_end(flow))
            && lt(nxt, una.wrapping_add(self.core.flows[flow].snd_wnd));
        let hole = match first {
            Some(hole) => hole,
            None if has_new => return Some(false),
            None => match extra.sacked.hole(from, highest) {
                Some(hole) => hole,
                None => return Some(false),
            },
        };
        let to = self.write_range(now, flow, out, hole.0, hole.1, kind)?;
        let rto = self.core.rto(flow);
        let extra = self.core.make_extra(flow);
        extra.high_rxt = max(extra.high_rxt, to);
        if !self.core.flows[flow].bits.has(Bits::RTX) {
            self.core.start_rtx(now, flow, rto);
        }
        Some(true)
    }

    /// Retransmits at most one segment of the octets in `from..to`. Returns the number after the
    /// last octet sent.
    fn write_range(
        &mut self,
        now: Nanos,
        flow: u32,
        out: &mut impl Output,
        from: u32,
        to: u32,
        kind: Kind,
    ) -> Option<u32> {
        let f = &self.core.flows[flow];
        let fin_sent = matches!(f.tcp_state(), State::FinWait1 | State::Closing | State::LastAck);
        let data_end = if fin_sent { f.snd_nxt.wrapping_sub(1) } else { f.snd_nxt };
        let options = self.options(now, flow);
        let most = u32::from(f.mss) - options.octets() as u32;
        let len = distance(from, min(to, data_end)).min(most);
        let end = from.wrapping_add(len);
        let fin = fin_sent && end == data_end && lt(data_end, to);
        self.write_segment(flow, out, from, len + u32::from(fin), &options, kind)?;
        let counters = self.core.counters(flow);
        *match kind {
            Kind::Rto => &mut counters.retransmit_rto,
            Kind::Sack => &mut counters.retransmit_sack,
            _ => &mut counters.retransmit_fast,
        } += 1;
        counters.retransmit_octets += u64::from(len);
        // Karn's algorithm (RFC 6298 §3): the acknowledgment of a retransmitted segment is
        // ambiguous, so it gives no sample.
        self.core.flows[flow].bits.clear(Bits::TIMING);
        let end = end.wrapping_add(u32::from(fin));
        self.model_sent(now, flow, from, end, true);
        Some(end)
    }

    /// Sends new data, with a FIN after the last octet. The flow is in ESTABLISHED or CLOSE-WAIT.
    #[inline]
    fn write_new(
        &mut self,
        now: Nanos,
        flow: u32,
        idle: bool,
        out: &mut impl Output,
    ) -> Option<bool> {
        let f = &self.core.flows[flow];
        let (plain, first) = (!f.has_extra(), self.core.first_piece(flow));
        let end = match first.piece.len {
            0 => f.snd_nxt,
            _ if plain => first.end(),
            _ => self.core.stream_end(flow),
        };
        let buffer = self.core.class(flow).send_buffer.saturating_sub(f.flight());
        let available = end.wrapping_sub(f.snd_nxt);
        if available == 0 && !plain {
            self.model_has_no_data(flow);
        }
        let f = &self.core.flows[flow];
        let closes = f.bits.has(Bits::CLOSE) && available <= buffer;
        let available = available.min(buffer);
        if available == 0 && !closes {
            return Some(false);
        }
        if f.flight() == 0 {
            self.after_idle(now, flow);
        }
        let f = &self.core.flows[flow];
        let options = self.options(now, flow);
        let (nxt, flight, bits) = (f.snd_nxt, f.flight(), f.bits);
        let mss = u32::from(f.mss);
        let most = mss - options.octets() as u32;
        let window = distance(nxt, f.snd_una.wrapping_add(f.snd_wnd));
        let allowed = match bits.dupacks() {
            0 if plain => f.cwnd.saturating_sub(flight),
            _ => self.allowed(flow),
        };
        let mut len = available.min(window).min(allowed);
        // While data is outstanding, its retransmissions probe the window; otherwise the persist
        // timer must do it.
        if window == 0 || (len == 0 && available > 0) {
            if flight == 0 && window == 0 && !bits.has(Bits::PERSIST) {
                self.persist(now, flow);
            }
            return Some(false);
        }
        let no_delay = idle || self.core.class(flow).tunables.no_delay;
        if len < most {
            // Sender's silly window avoidance (RFC 9293 §3.8.6.2.1): no short segment while data is
            // outstanding, unless it is the last one (Nagle: and nothing was outstanding before).
            let last = len == available && (no_delay || closes);
            if !last && flight > 0 {
                return Some(false);
            }
            // A segment truncated by the window waits for the time-out (§3.8.6.2.1, condition 4),
            // unless the window is at least half of the peer's largest one.
            if len == window && len < available && !self.is_wide(flow, window) {
                if !bits.has(Bits::PERSIST) {
                    self.persist(now, flow);
                }
                return Some(false);
            }
        } else {
            len = self.whole_segments(flow, len, most, len < available || !no_delay && !closes);
        }
        let fin = closes && len == available && window > len;
        if len == 0 && !fin {
            return Some(false);
        }
        let numbers = len + u32::from(fin);
        self.write_segment(flow, out, nxt, numbers, &options, Kind::New)?;
        let lag = self.core.lag;
        let (f, class) = self.core.parts(flow);
        f.snd_nxt = nxt.wrapping_add(numbers);
        if fin {
            f.bits.set_state(if f.tcp_state() == State::Established {
                State::FinWait1
            } else {
                State::LastAck
            });
        }
        if !f.bits.has(Bits::TIMESTAMPS | Bits::TIMING) {
            f.bits.set(Bits::TIMING);
            (f.ts_recent, f.rtt_sent) = (f.snd_nxt, stamp(now + lag) as u16);
        }
        class.counters.sent += u64::from(len);
        if flight == 0 || !f.bits.has(Bits::RTX) {
            f.bits.set_retries(0);
            f.bits.clear(Bits::PERSIST);
            let rto = rto(f, class);
            self.core.start_rtx(now, flow, rto);
        }
        if !plain {
            self.model_sent(now, flow, nxt, nxt.wrapping_add(numbers), false);
        }
        Some(true)
    }

    /// Octets that the congestion window still allows, of one packet if the flow is paced.
    fn allowed(&self, flow: u32) -> u32 {
        let f = &self.core.flows[flow];
        let bbr = self.core.extra_ref(flow).and_then(|extra| extra.bbr.as_ref());
        let quantum = bbr.map_or(u32::MAX, |bbr| bbr.quantum());
        quantum.min(match self.core.extra_ref(flow) {
            Some(extra) if matches!(extra.recovery, Recovery::Sack | Recovery::Loss) => {
                f.cwnd.saturating_sub(extra.pipe(f.snd_una, f.snd_nxt, f.mss.into()))
            }
            // Limited transmit (RFC 3042): one new segment for each of the first two duplicate
            // ACKs, because small windows would otherwise not reach the threshold of three.
            extra => {
                let inflated = extra.is_some_and(|e| e.recovery == Recovery::NewReno);
                let dupacks = if inflated { 0 } else { u32::from(f.bits.dupacks().min(2)) };
                f.cwnd.saturating_add(dupacks * u32::from(f.mss)).saturating_sub(f.flight())
            }
        })
    }

    /// Whether a window below one segment is at least half of the peer's largest (RFC 9293
    /// §3.8.6.2.1, condition 3). The maximum is stored from the first small window on only, because
    /// records have no field for it.
    fn is_wide(&mut self, flow: u32, window: u32) -> bool {
        let extra = self.core.make_extra(flow);
        let widest = extra.widest;
        extra.widest = widest.max(window);
        widest > 0 && window >= widest.div_ceil(2)
    }

    /// Restarts with the initial window after a silence longer than the RTO: the old window says
    /// nothing about the current path (RFC 5681 §4.1).
    fn after_idle(&mut self, now: Nanos, flow: u32) {
        if self.model_restarts(now, flow) {
            return;
        }
        let (f, class) = (&self.core.flows[flow], self.core.class(flow));
        let restart = initial_window(class.tunables.initwnd, f.mss.into());
        if f.cwnd <= restart || f.bits.has(Bits::PERSIST) {
            return;
        }
        // Without a running timer, `rtx_at` is the time of the last acknowledgment; with one, it is
        // the keepalive deadline, which counts from that time.
        let keepalive = if f.bits.has(Bits::RTX) { ticks(class.tunables.keepidle) + 1 } else { 0 };
        let silence = tick(now).wrapping_sub(f.rtx_at.wrapping_sub(keepalive));
        if f.bits.retries() > 0 || silence > self.core.rto(flow) {
            self.core.flows[flow].cwnd = restart;
        }
    }

    /// Starts the persist timer for a closed window. A lost window update would block both sides
    /// forever, so probes run (RFC 9293 §3.8.6.1).
    #[cold]
    fn persist(&mut self, now: Nanos, flow: u32) {
        let bits = &mut self.core.flows[flow].bits;
        bits.set(Bits::PERSIST);
        bits.reset_streaks();
        let rto = self.core.rto(flow);
        self.core.start_rtx(now, flow, rto);
    }

    /// The part of `len` that fits into a segment or a GSO packet. `whole`: no short segment at the
    /// end.
    #[inline]
    fn whole_segments(&self, flow: u32, len: u32, most: u32, whole: bool) -> u32 {
        let gso_max_size = u32::from(self.core.settings.gso_max_size);
        // All segments but the last of a GSO packet leave without PSH.
        if gso_max_size == 0 || len <= most || self.core.class(flow).tunables.push_all {
            return most;
        }
        let ip = if self.core.flows[flow].bits.has(Bits::V6) { IPV6 } else { IPV4 } as u32;
        let headers = ip + TCP_HEADER as u32 + u32::from(self.core.flows[flow].mss) - most;
        let len = len.min((gso_max_size.saturating_sub(headers) / most).max(1) * most);
        if whole { len - len % most } else { len }
    }

    /// Options of a segment other than a SYN.
    #[inline]
    pub(crate) fn options(&self, now: Nanos, flow: u32) -> OptionWords {
        let f = &self.core.flows[flow];
        let stamps = f.bits.has(Bits::TIMESTAMPS);
        let mut options = if stamps {
            OptionWords::stamps(stamp(now + self.core.lag), f.ts_recent)
        } else {
            OptionWords::default()
        };
        if f.has_extra() && f.bits.has(Bits::SACK) {
            // 40 octets of options hold four SACK blocks, or three with timestamps (RFC 2018 §3).
            let mut blocks = [(0, 0); 4];
            let most = if stamps { 3 } else { 4 };
            let n =
                self.core.extra_ref(flow).map_or(0, |e| e.reassembly.blocks(&mut blocks[..most]));
            if n > 0 {
                options.push(0x0101_0500 | (2 + 8 * n as u32));
                for (left, right) in &blocks[..n] {
                    options.push(*left);
                    options.push(*right);
                }
            }
        }
        options
    }

    /// Writes one segment: `numbers` sequence numbers from `seq` on, all of them octets except a
    /// FIN at the end of the stream. `None`: no room, and nothing has changed.
    #[inline]
    fn write_segment(
        &mut self,
        flow: u32,
        out: &mut impl Output,
        seq: u32,
        numbers: u32,
        options: &OptionWords,
        kind: Kind,
    ) -> Option<()> {
        let key = self.core.key(flow);
        let tuple = key.tuple();
        let ip = ip_len(key.addresses);
        let headers = ip + TCP_HEADER + options.octets();
        let (window, edge) = self.window(flow);
        let f = &self.core.flows[flow];
        let first = self.core.first_piece(flow);
        let (mut flags, mut len) = (ACK, numbers);
        if numbers > 0 {
            let end = if !f.has_extra() && first.piece.len > 0 {
                first.end()
            } else {
                self.core.stream_end(flow)
            };
            let last = distance(seq, end);
            if numbers > last {
                flags |= FIN;
                len = last;
            }
            // PSH on the last octet that the application has queued (RFC 9293 §3.9.1.2, MUST-61),
            // and on the last octet in the send buffer, as in BSD.
            let class = self.core.class(flow);
            let (buffer, all) = (class.send_buffer, class.tunables.push_all);
            if len > 0
                && (all || len == last || seq.wrapping_sub(f.snd_una).wrapping_add(len) == buffer)
            {
                flags |= PSH;
            }
        }
        let size = u32::from(f.mss) - options.octets() as u32;
        let cut = if len > size {
            Cut { size: size as u16, transport: ip as u8, payload: headers as u8 }
        } else {
            Cut::WHOLE
        };
        let mut ect = 0;
        if f.bits.has(Bits::ECN) {
            if f.bits.has(Bits::ECE) {
                flags |= ECE;
            }
            // Retransmissions are not ECN-capable (RFC 3168 §6.1.5): a receiver ignores marks
            // outside of its window, so the mark would be lost.
            if len > 0 && kind == Kind::New {
                ect = ECT0;
                flags |= if f.bits.has(Bits::CWR) { CWR } else { 0 };
            }
        }
        let packet = out.packet(ClassId(f.class), &tuple, headers + len as usize, cut)?;
        if len > 0 {
            let room = &mut packet[headers..];
            let offset = seq.wrapping_sub(first.at);
            if offset < first.piece.len && len <= first.piece.len - offset {
                self.app.copy(&f.state, &tuple, first.piece, offset, room);
            } else {
                self.copy_pieces(flow, &tuple, seq, room);
            }
        }
        self.core.ip_id = self.core.ip_id.wrapping_add(cut.segments(headers as u32 + len) as u16);
        let id = self.core.ip_id;
        let (f, class) = self.core.parts(flow);
        let header = TcpHeader {
            local_port: key.local_port,
            remote_port: key.remote_port,
            seq,
            ack: f.rcv_nxt,
            flags,
            window,
        };
        let pseudo = pseudo(f, key.addresses);
        write_tcp(&mut packet[ip..], pseudo, &header, options, !cut.is_whole());
        let (tos, ttl) = (class.tunables.tos | ect, class.tunables.ttl);
        write_ip(packet, key.addresses, (TCP, pseudo), tos, ttl, id);
        f.rcv_adv = edge;
        f.bits.clear(Bits::ACK_NOW | Bits::ACK_LATER | if ect > 0 { Bits::CWR } else { 0 });
        class.counters.segments_out += 1;
        class.counters.octets_out += headers as u64 + u64::from(len);
        class.counters.zero_windows_out += u64::from(window == 0);
        Some(())
    }

    /// Copies octets of the stream from `at` on, across pieces.
    #[cold]
    fn copy_pieces(&self, flow: u32, tuple: &Tuple, mut at: u32, mut room: &mut [u8]) {
        let (f, first) = (&self.core.flows[flow], self.core.first_piece(flow));
        while !room.is_empty() {
            let (begin, piece) = if at.wrapping_sub(first.at) < first.piece.len {
                (first.at, first.piece)
            } else {
                self.core.extra_ref(flow).expect("what is sent is in a piece").piece(at)
            };
            let offset = at.wrapping_sub(begin);
            let n = room.len().min((piece.len - offset) as usize);
            let (here, rest) = room.split_at_mut(n);
            self.app.copy(&f.state, tuple, piece, offset, here);
            (room, at) = (rest, at.wrapping_add(n as u32));
        }
    }

    /// The window field, and the right edge that it advertises.
    #[inline]
    pub(crate) fn window(&self, flow: u32) -> (u16, u32) {
        let f = &self.core.flows[flow];
        let class = self.core.class(flow);
        let scaled = f.bits.wscale().is_some();
        let (field, octets) = match self.core.extra_ref(flow) {
            Some(extra) if extra.paused => {
                let open = distance(f.rcv_nxt, f.rcv_adv);
                advertised(open, if scaled { class.scale } else { 0 })
            }
            _ => class.advertised[usize::from(scaled)],
        };
        // An advertised edge is never withdrawn (RFC 9293 §3.8.6, SHLD-14), even where rounding to
        // the window scale would.
        (field, max(f.rcv_adv, f.rcv_nxt.wrapping_add(octets)))
    }

    /// Sends a SYN or SYN-ACK, after which the flow has nothing left to send.
    #[inline(never)]
    fn write_syn<const V6: bool>(
        &mut self,
        now: Nanos,
        clock: u32,
        flow: u32,
        out: &mut impl Output,
    ) -> FastWrite {
        let (f, class) = self.core.parts(flow);
        let (bits, echo) = (f.bits, f.ts_recent);
        match usual_options(&class.tunables, bits, clock, echo) {
            Some(options) => {
                let of = (flow, clock, SYN_HEADER);
                self.write_syn_with::<V6>(now, of, out, |segment, pseudo, header| {
                    write_tcp_with(segment, pseudo, header, options, 0);
                })
            }
            None => self.write_other_syn::<V6>(now, clock, flow, out),
        }
    }

    /// [`Stack::write_syn`] with other options than usual.
    #[inline(never)]
    fn write_other_syn<const V6: bool>(
        &mut self,
        now: Nanos,
        clock: u32,
        flow: u32,
        out: &mut impl Output,
    ) -> FastWrite {
        let (f, class) = self.core.parts(flow);
        let (bits, echo) = (f.bits, f.ts_recent);
        let options = syn_options(&class.tunables, bits, clock, echo);
        let octets = TCP_HEADER + options.octets();
        self.write_syn_with::<V6>(now, (flow, clock, octets), out, |segment, pseudo, header| {
            write_tcp(segment, pseudo, header, &options, false);
        })
    }

    /// [`Stack::write_syn`], whose header of `header` octets `write` writes. `clock`: that of
    /// timestamps.
    #[inline(always)]
    fn write_syn_with<const V6: bool>(
        &mut self,
        now: Nanos,
        (flow, clock, header): (u32, u32, usize),
        out: &mut impl Output,
        write: impl FnOnce(&mut [u8], u64, &TcpHeader),
    ) -> FastWrite {
        let core = &mut self.core;
        let f = &mut core.flows.0[flow as usize];
        let class = &mut core.classes[usize::from(f.class)];
        let (bits, retries) = (f.bits, f.bits.retries());
        let answers = bits.state() == State::SynReceived;
        // An unanswered SYN is repeated without ECN, because some middleboxes drop ECN-setup SYNs
        // (RFC 3168 §6.1.1.1).
        let mut flags = SYN | if answers { ACK } else { 0 };
        if bits.has(Bits::ECN) && class.tunables.ecn && retries == 0 {
            flags |= if answers { ECE } else { ECE | CWR };
        }
        let addresses = addresses(V6, f.packed(), &core.addresses6);
        let (local_port, remote_port) = (f.local_port, f.remote_port);
        let key = Key { addresses, local_port, remote_port, udp: false };
        let ip = ip_len(addresses);
        let octets = ip + header;
        let Some(packet) = room(out, ClassId(f.class), &key, octets) else {
            return FastWrite::NoRoom;
        };
        let packet = &mut packet[..octets];
        core.ip_id = core.ip_id.wrapping_add(1);
        let (tos, ttl) = (class.tunables.tos, class.tunables.ttl);
        let (seq, ack) = (f.snd_una, if answers { f.rcv_nxt } else { 0 });
        // A SYN's window is never scaled (RFC 7323 §2.2).
        let (window, _) = class.advertised[0];
        let header = TcpHeader { local_port, remote_port, seq, ack, flags, window };
        let pseudo = pseudo(f, addresses);
        write(&mut packet[ip..], pseudo, &header);
        write_ip(packet, addresses, (TCP, pseudo), tos, ttl, core.ip_id);
        class.counters.segments_out += 1;
        class.counters.octets_out += octets as u64;
        class.counters.retransmit_syn += u64::from(retries > 0);
        f.bits.clear(Bits::HEAD | Bits::ACK_NOW | Bits::ACK_LATER | Bits::QUEUED);
        // Timed only the first time: Karn's algorithm applies to SYNs too (RFC 6298 §3).
        if retries == 0 {
            f.bits.set(Bits::TIMING);
            f.rtt_sent = clock as u16;
        }
        if !bits.has(Bits::RTX) {
            let wait = lag_ticks(core.lag, rto(f, class));
            f.rtx_at = tick(now).wrapping_add(wait + 1);
            f.bits.set(Bits::RTX);
            // The wheel first holds the flow at the minimum RTO: most SYNs are answered by then,
            // and the flow next waits for a shorter time, so it need not move in the wheel.
            let first_wake = class.rto_min.min(wait);
            let number = f.number;
            core.wake_number(now, number, tick(now).wrapping_add(first_wake + 1));
        }
        FastWrite::Sent
    }

    #[inline(never)]
    fn write_datagram(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<bool> {
        let first = self.core.first_piece(flow);
        let piece = first.piece;
        if piece.len == 0 {
            return Some(false);
        }
        let key = self.core.key(flow);
        let ip = ip_len(key.addresses);
        let class = self.core.flows[flow].class;
        let len = ip + UDP_HEADER + piece.len as usize;
        let packet = out.packet(ClassId(class), &key.tuple(), len, Cut::WHOLE)?;
        self.app.copy(
            &self.core.flows[flow].state,
            &key.tuple(),
            piece,
            0,
            &mut packet[ip + UDP_HEADER..],
        );
        write_udp(&mut packet[ip..], key.addresses, key.local_port, key.remote_port);
        self.core.ip_id = self.core.ip_id.wrapping_add(1);
        let class = &mut self.core.classes[usize::from(class)];
        let (tos, ttl) = (class.tunables.tos, class.tunables.ttl);
        let of = (UDP, key.addresses.pseudo(UDP));
        write_ip(packet, key.addresses, of, tos, ttl, self.core.ip_id);
        class.counters.segments_out += 1;
        class.counters.octets_out += len as u64;
        class.counters.sent += u64::from(piece.len);
        let end = first.end();
        let f = &mut self.core.flows[flow];
        (f.snd_una, f.snd_nxt) = (end, end);
        self.core.drop_pieces(flow, end);
        if self.core.first_piece(flow).piece.len == 0 {
            self.core.release_extra(flow);
        }
        self.restart_idle(now, flow);
        Some(true)
    }
}

/// [`Addresses::pseudo`] of a flow's segments, folded. Summed once: IPv6 addresses are eight words
/// of 32 bits.
#[inline(always)]
fn pseudo<S>(f: &mut Flow<S>, addresses: Addresses) -> u64 {
    if f.sum == 0 {
        f.sum = checksum::fold(addresses.pseudo(TCP));
    }
    debug_assert_eq!(f.sum, checksum::fold(addresses.pseudo(TCP)), "the ends of a flow stay");
    f.sum.into()
}

/// Room for one segment.
#[inline(always)]
fn room<'o>(
    out: &'o mut impl Output,
    class: ClassId,
    key: &Key,
    octets: usize,
) -> Option<&'o mut [u8]> {
    match key.addresses {
        Addresses::V4 { local, remote } => {
            out.segment4(class, [local, remote], [key.local_port, key.remote_port], octets)
        }
        Addresses::V6 { local, remote } => {
            out.segment6(class, [local, remote], [key.local_port, key.remote_port], octets)
        }
    }
}

/// [`syn_options`] of a SYN or SYN-ACK that has all of them in the order of Linux, as most have.
#[inline]
fn usual_options(tunables: &Tunables, bits: Bits, clock: u32, ts_recent: u32) -> Option<[u32; 5]> {
    let answers = bits.state() == State::SynReceived;
    let both = Bits::SACK | Bits::TIMESTAMPS;
    let scale = tunables.wscale.filter(|_| !answers || bits.wscale().is_some())?;
    if bits.0 & both != both || tunables.option_order != OptionOrder::Linux {
        return None;
    }
    let shorter = if bits.has(Bits::V6) { (IPV6 - IPV4) as u16 } else { 0 };
    let (mss, scale) = (u32::from(tunables.mss - shorter), u32::from(scale));
    let echo = if answers { ts_recent } else { 0 };
    Some([0x0204_0000 | mss, 0x0402_080a, clock, echo, 0x0103_0300 | scale])
}

/// Options of the SYN or SYN-ACK of a flow with these `bits`, sent at `clock`.
#[inline]
fn syn_options(tunables: &Tunables, bits: Bits, clock: u32, ts_recent: u32) -> OptionWords {
    let answers = bits.state() == State::SynReceived;
    let shorter = if bits.has(Bits::V6) { (IPV6 - IPV4) as u16 } else { 0 };
    let mut options = OptionWords::default();
    options.push(0x0204_0000 | u32::from(tunables.mss - shorter));
    // A SYN-ACK may only carry options that the SYN offered (RFC 7323 §2.2, §3.2).
    let scale = tunables
        .wscale
        .filter(|_| !answers || bits.wscale().is_some())
        .map(|scale| 0x0103_0300 | u32::from(scale));
    let bsd = tunables.option_order == OptionOrder::Bsd;
    if let Some(scale) = scale.filter(|_| bsd) {
        options.push(scale);
    }
    match (bits.has(Bits::SACK), bits.has(Bits::TIMESTAMPS)) {
        (sack, true) => {
            options.push(if sack { 0x0402_080a } else { 0x0101_080a });
            options.push(clock);
            options.push(if answers { ts_recent } else { 0 });
        }
        (true, false) => options.push(if bsd { 0x0402_0000 } else { 0x0101_0402 }),
        (false, false) => (),
    }
    if let Some(scale) = scale.filter(|_| !bsd) {
        options.push(scale);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_options_of_a_syn_are_those_of_the_general_way() {
        let mut usual = 0;
        for word in 0..1 << 6 {
            let has = |bit: u32| word >> bit & 1 == 1;
            let mut bits = Bits::default();
            bits.set_state(if has(0) { State::SynReceived } else { State::SynSent });
            bits.set(if has(1) { Bits::SACK } else { 0 });
            bits.set(if has(2) { Bits::TIMESTAMPS } else { 0 });
            bits.set(if has(3) { Bits::V6 } else { 0 });
            bits.set_wscale(has(4).then_some(3));
            for option_order in [OptionOrder::Linux, OptionOrder::Bsd] {
                let wscale = has(5).then_some(9);
                let tunables = Tunables { wscale, option_order, ..Tunables::default() };
                let Some(options) = usual_options(&tunables, bits, 77, 99) else { continue };
                let general = syn_options(&tunables, bits, 77, 99);
                let mut words = OptionWords::default();
                options.iter().for_each(|word| words.push(*word));
                assert_eq!(words, general);
                usual += 1;
            }
        }
        // With a scale, SACK and timestamps: all but answers to a SYN without a scale.
        assert_eq!(usual, 6);
    }
}
