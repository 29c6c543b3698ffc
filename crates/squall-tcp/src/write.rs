//! What a flow sends when: SYNs, what is lost, new data, probes, acknowledgements.

use squall_units::{Cut, Nanos};

use crate::{
    Application, ClassId, Output, Piece,
    arrives::stamp,
    extra::Recovery,
    flow::{Bits, NO_EXTRA, State},
    packet::{
        ACK, CWR, ECE, FIN, PSH, SYN, TCP, TCP_HEADER, TcpHeader, UDP, UDP_HEADER, ip_len, put16, put32, write_ip,
        write_tcp, write_udp,
    },
    seq::{distance, le, lt, max, min},
    stack::{Left, Stack, Written},
};

/// Packets that a flow sends before it is the next one's turn.
const TURN: usize = 32;

/// ECN-capable transport, ECT(0) (RFC 3168 §5).
const ECT0: u8 = 2;

/// Room for the options of a segment.
const OPTIONS: usize = 40;

/// Why a segment is sent, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    New,
    Rto,
    Fast,
    Sack,
}

impl<A: Application> Stack<A> {
    /// Sends what `flow` may send now.
    pub(crate) fn write(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Written {
        let mut packets = 0;
        let mut left = Left::Nothing;
        loop {
            if packets >= TURN {
                left = Left::Turn;
                break;
            }
            match self.write_one(now, flow, out) {
                Some(true) => packets += 1,
                Some(false) => break,
                None => {
                    left = Left::Room;
                    break;
                }
            }
        }
        Written { packets, left }
    }

    /// The next packet: whether there was one; `None`: there is no room.
    #[inline]
    fn write_one(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<bool> {
        let bits = self.core.flows[flow].bits;
        match bits.state() {
            State::Closed => Some(false),
            State::Udp => self.write_datagram(now, flow, out),
            State::SynSent | State::SynReceived => {
                if bits.has(Bits::HEAD) {
                    self.write_syn(now, flow, out)
                } else {
                    self.write_ack(now, flow, out)
                }
            }
            State::TimeWait => self.write_ack(now, flow, out),
            _ if bits.has(Bits::PROBE) => {
                let seq = self.core.flows[flow].snd_una.wrapping_sub(1);
                self.write_segment(now, flow, out, seq, 0, false, Kind::New)?;
                self.core.flows[flow].bits.clear(Bits::PROBE);
                Some(true)
            }
            _ => {
                if self.core.flows[flow].extra != NO_EXTRA || bits.has(Bits::HEAD) {
                    match self.write_again(now, flow, out) {
                        Some(false) => (),
                        written => return written,
                    }
                }
                match self.write_new(now, flow, out) {
                    Some(false) => self.write_ack(now, flow, out),
                    written => written,
                }
            }
        }
    }

    fn write_ack(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<bool> {
        if !self.core.flows[flow].bits.has(Bits::ACK_NOW) {
            return Some(false);
        }
        let seq = self.core.flows[flow].snd_nxt;
        self.write_segment(now, flow, out, seq, 0, false, Kind::New)?;
        self.core.counters(flow).acks_out += 1;
        Some(true)
    }

    /// What is to be sent again.
    fn write_again(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<bool> {
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
            let end = self.core.extra_ref(flow).and_then(|e| e.sacked.hole(una, nxt)).map_or(nxt, |h| h.1);
            let to = self.write_range(now, flow, out, una, end, kind)?;
            self.core.flows[flow].bits.clear(Bits::HEAD);
            if let Some(extra) = self.core.extra(flow) {
                extra.high_rxt = max(extra.high_rxt, to);
            }
            // RFC 6298 §5.1, RFC 6675 §5.1, step 4.3.
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
        // SetPipe (RFC 6675 §4): what is not lost, and what was sent again. After a time-out all was lost.
        let highest = extra.sacked.highest().unwrap_or(una);
        let edge = match recovery {
            Recovery::Loss => extra.recover,
            _ => extra.sacked.lost_below(mss).unwrap_or(una),
        };
        let pipe = extra.sacked.holes(max(edge, una), nxt) + sent_twice(&extra.sacked, una, extra.high_rxt, edge);
        if pipe.saturating_add(mss) > cwnd && pipe > 0 {
            return Some(false);
        }
        // NextSeg: rule 1, the first that is lost and was not sent again.
        let from = max(extra.high_rxt, una);
        let first = extra.sacked.hole(from, edge);
        // Rule 3, if there is nothing new to send; rule 4, once.
        let has_new = lt(nxt, self.core.stream_end(flow)) && lt(nxt, una.wrapping_add(self.core.flows[flow].snd_wnd));
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

    /// Sends octets that were sent before, from `from` on, not beyond `to` and a segment; where the next ones begin.
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
        let most = u32::from(f.mss) - self.option_len(flow) as u32;
        let len = distance(from, min(to, data_end)).min(most);
        let end = from.wrapping_add(len);
        let fin = fin_sent && end == data_end && lt(data_end, to);
        self.write_segment(now, flow, out, from, len, fin, kind)?;
        let counters = self.core.counters(flow);
        *match kind {
            Kind::Rto => &mut counters.retransmit_rto,
            Kind::Sack => &mut counters.retransmit_sack,
            _ => &mut counters.retransmit_fast,
        } += 1;
        counters.retransmit_octets += u64::from(len);
        // A segment that is timed and was sent again times nothing (Karn).
        self.core.flows[flow].bits.clear(Bits::TIMING);
        Some(end.wrapping_add(u32::from(fin)))
    }

    /// New octets, a FIN behind the last.
    fn write_new(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<bool> {
        let end = self.core.stream_end(flow);
        let f = &self.core.flows[flow];
        if !matches!(f.tcp_state(), State::Established | State::CloseWait) {
            return Some(false);
        }
        let available = end.wrapping_sub(f.snd_nxt);
        let closes = f.bits.has(Bits::CLOSE);
        if available == 0 && !closes {
            return Some(false);
        }
        let (una, nxt, flight, bits) = (f.snd_una, f.snd_nxt, f.flight(), f.bits);
        let most = u32::from(f.mss) - self.option_len(flow) as u32;
        let class = self.core.class(flow);
        let no_delay = class.tunables.no_delay;
        let f = &self.core.flows[flow];
        let window = distance(nxt, una.wrapping_add(f.snd_wnd));
        let congestion = match self.core.extra_ref(flow) {
            Some(e) if matches!(e.recovery, Recovery::Sack | Recovery::Loss) => {
                let mss = u32::from(f.mss);
                let edge =
                    if e.recovery == Recovery::Loss { e.recover } else { e.sacked.lost_below(mss).unwrap_or(una) };
                let again = sent_twice(&e.sacked, una, e.high_rxt, edge);
                let pipe = e.sacked.holes(max(edge, una), nxt) + again;
                f.cwnd.saturating_sub(pipe)
            }
            // Limited transmit (RFC 3042): a segment for each of the first two duplicates.
            e => {
                let dupacks =
                    if e.is_some_and(|e| e.recovery == Recovery::NewReno) { 0 } else { bits.dupacks().min(2) };
                f.cwnd.saturating_add(u32::from(dupacks) * u32::from(f.mss)).saturating_sub(flight)
            }
        };
        let mut len = available.min(window).min(congestion);
        if window == 0 || (len == 0 && available > 0) {
            if flight == 0 && window == 0 && !bits.has(Bits::PERSIST) {
                // Only a probe finds out when it opens again.
                self.core.flows[flow].bits.set(Bits::PERSIST);
                self.core.flows[flow].bits.set_dupacks(0);
                let rto = self.core.rto(flow);
                self.core.start_rtx(now, flow, rto);
            }
            return Some(false);
        }
        // Silly window avoidance (RFC 9293 §3.8.6.2.1): no short segment, but the last (Nagle: if nothing is under way),
        // or the only one.
        if len < most {
            let last = len == available && (no_delay || flight == 0 || closes);
            if !last && flight > 0 {
                return Some(false);
            }
        } else {
            let super_packet = usize::from(self.core.settings.super_packet);
            let headers = ip_len(self.core.addresses(flow)) + TCP_HEADER + self.option_len(flow);
            let segments = if super_packet > 0 { ((super_packet - headers) as u32 / most).clamp(1, 255) } else { 1 };
            // Whole segments, but for the last octets.
            len = len.min(segments * most);
            let nagle = !no_delay && !closes;
            if len > most && (len < available || nagle) {
                len -= len % most;
            }
        }
        let fin = closes && len == available && (window > len || flight == 0 && window >= len);
        if len == 0 && !fin {
            return Some(false);
        }
        self.write_segment(now, flow, out, nxt, len, fin, Kind::New)?;
        let ms = stamp(now) as u16;
        let f = &mut self.core.flows[flow];
        f.snd_nxt = nxt.wrapping_add(len + u32::from(fin));
        if fin {
            f.bits.set_state(if f.tcp_state() == State::Established { State::FinWait1 } else { State::LastAck });
        }
        if !f.bits.has(Bits::TIMESTAMPS | Bits::TIMING) {
            f.bits.set(Bits::TIMING);
            (f.ts_recent, f.rtt_sent) = (f.snd_nxt, ms);
        }
        if flight == 0 || !f.bits.has(Bits::RTX) {
            f.bits.set_retries(0);
            f.bits.clear(Bits::PERSIST);
            let rto = self.core.rto(flow);
            self.core.start_rtx(now, flow, rto);
        }
        self.core.counters(flow).sent += u64::from(len);
        Some(true)
    }

    /// Octets of the options of a segment that is no SYN.
    #[inline]
    fn option_len(&self, flow: u32) -> usize {
        let stamps = if self.core.flows[flow].bits.has(Bits::TIMESTAMPS) { 12 } else { 0 };
        stamps + self.sack_len(flow, stamps)
    }

    #[inline]
    fn sack_len(&self, flow: u32, stamps: usize) -> usize {
        match self.core.extra_ref(flow) {
            Some(extra) if self.core.flows[flow].bits.has(Bits::SACK) && !extra.ahead.is_empty() => {
                let mut blocks = [(0, 0); 4];
                match extra.ahead.blocks(&mut blocks[..if stamps > 0 { 3 } else { 4 }]) {
                    0 => 0,
                    n => 4 + 8 * n,
                }
            }
            _ => 0,
        }
    }

    /// One segment: `len` octets of the stream from `seq`. `None`: no room, nothing has changed.
    #[inline]
    #[allow(clippy::too_many_arguments)] // A segment has as many sides.
    fn write_segment(
        &mut self,
        now: Nanos,
        flow: u32,
        out: &mut impl Output,
        seq: u32,
        len: u32,
        fin: bool,
        kind: Kind,
    ) -> Option<()> {
        let mut options = [0; OPTIONS];
        let option_len = self.put_options(now, flow, &mut options);
        let key = self.core.key(flow);
        let ip = ip_len(key.addresses);
        let headers = ip + TCP_HEADER + option_len;
        let (window, edge) = self.window(flow);
        let end = self.core.stream_end(flow);
        let f = &self.core.flows[flow];
        let size = u32::from(f.mss) - option_len as u32;
        let cut = if len > size {
            Cut { size: size as u16, transport: ip as u8, payload: headers as u8 }
        } else {
            Cut::WHOLE
        };
        let mut flags = ACK | if fin { FIN } else { 0 };
        // The last of what the application has said.
        if len > 0 && seq.wrapping_add(len) == end {
            flags |= PSH;
        }
        let ect = f.bits.has(Bits::ECN) && len > 0 && kind == Kind::New;
        if f.bits.has(Bits::ECE) {
            flags |= ECE;
        }
        if ect && f.bits.has(Bits::CWR) {
            flags |= CWR;
        }
        let class = f.class;
        let packet = out.packet(ClassId(class), &key.tuple(), headers + len as usize, cut)?;
        let mut at = seq;
        let mut room = &mut packet[headers..];
        while !room.is_empty() {
            let (begin, piece) = self.piece(flow, at);
            let offset = at.wrapping_sub(begin);
            let n = room.len().min((piece.len - offset) as usize);
            let (here, rest) = room.split_at_mut(n);
            self.app.copy(&self.core.flows[flow].state, &key.tuple(), piece, offset, here);
            (room, at) = (rest, at.wrapping_add(n as u32));
        }
        let f = &mut self.core.flows.0[flow as usize];
        let header = TcpHeader {
            local_port: key.local_port,
            remote_port: key.remote_port,
            seq,
            ack: f.rcv_nxt,
            flags,
            window,
            options: &options[..option_len],
        };
        write_tcp(&mut packet[ip..], key.addresses, &header, !cut.is_whole());
        f.rcv_adv = edge;
        f.bits.clear(Bits::ACK_NOW | Bits::ACK_LATER);
        if ect {
            f.bits.clear(Bits::CWR);
        }
        self.core.ip_id = self.core.ip_id.wrapping_add(cut.segments(headers as u32 + len) as u16);
        let class = &mut self.core.classes[usize::from(class)];
        let tos = class.tunables.tos | if ect { ECT0 } else { 0 };
        write_ip(packet, key.addresses, TCP, tos, class.tunables.ttl, self.core.ip_id);
        class.counters.segments_out += 1;
        class.counters.octets_out += headers as u64 + u64::from(len);
        if window == 0 {
            class.counters.zero_windows_out += 1;
        }
        Some(())
    }

    #[inline]
    fn piece(&self, flow: u32, at: u32) -> (u32, Piece) {
        let f = &self.core.flows[flow];
        if at.wrapping_sub(f.piece_at) < f.piece.len {
            return (f.piece_at, f.piece);
        }
        self.core.extra_ref(flow).expect("what is sent is in a piece").piece(at)
    }

    /// The window field, and the edge that it tells.
    #[inline]
    fn window(&self, flow: u32) -> (u16, u32) {
        let f = &self.core.flows[flow];
        let class = self.core.class(flow);
        let scale = if f.bits.wscale().is_some() { class.tunables.wscale.unwrap_or(0) } else { 0 };
        let open = match self.core.extra_ref(flow) {
            Some(extra) if extra.paused => distance(f.rcv_nxt, f.rcv_adv),
            _ => class.window,
        };
        let field = (open >> scale).min(u16::MAX.into());
        let edge = f.rcv_nxt.wrapping_add(field << scale);
        // What was told holds (RFC 9293 §3.8.6.2.2), whatever rounding makes of it.
        (field as u16, max(f.rcv_adv, edge))
    }

    #[inline]
    fn put_options(&self, now: Nanos, flow: u32, options: &mut [u8; OPTIONS]) -> usize {
        let f = &self.core.flows[flow];
        let mut len = 0;
        if f.bits.has(Bits::TIMESTAMPS) {
            options[..4].copy_from_slice(&[1, 1, 8, 10]);
            put32(options, 4, stamp(now));
            put32(options, 8, f.ts_recent);
            len = 12;
        }
        if f.extra != NO_EXTRA && f.bits.has(Bits::SACK) {
            let mut blocks = [(0, 0); 4];
            let most = if len > 0 { 3 } else { 4 };
            let n = self.core.extra_ref(flow).map_or(0, |e| e.ahead.blocks(&mut blocks[..most]));
            if n > 0 {
                options[len..len + 4].copy_from_slice(&[1, 1, 5, (2 + 8 * n) as u8]);
                len += 4;
                for (left, right) in &blocks[..n] {
                    put32(options, len, *left);
                    put32(options, len + 4, *right);
                    len += 8;
                }
            }
        }
        len
    }

    fn write_syn(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<bool> {
        let class = self.core.class(flow);
        let (wscale, mss_wanted) = (class.tunables.wscale, class.tunables.mss);
        let window = class.window.min(u16::MAX.into()) as u16;
        let (tos, ttl, ecn_wanted) = (class.tunables.tos, class.tunables.ttl, class.tunables.ecn);
        let f = &self.core.flows[flow];
        let answers = f.tcp_state() == State::SynReceived;
        let (bits, isn, rcv_nxt, ts_recent) = (f.bits, f.snd_una, f.rcv_nxt, f.ts_recent);
        let mut options = [0; OPTIONS];
        let mut len = 4;
        let mss = if bits.has(Bits::V6) { mss_wanted - 20 } else { mss_wanted };
        options[..2].copy_from_slice(&[2, 4]);
        put16(&mut options, 2, mss);
        if bits.has(Bits::SACK) {
            let pad: &[u8] = if bits.has(Bits::TIMESTAMPS) { &[4, 2] } else { &[1, 1, 4, 2] };
            options[len..len + pad.len()].copy_from_slice(pad);
            len += pad.len();
        }
        if bits.has(Bits::TIMESTAMPS) {
            let pad: &[u8] = if bits.has(Bits::SACK) { &[8, 10] } else { &[1, 1, 8, 10] };
            options[len..len + pad.len()].copy_from_slice(pad);
            len += pad.len();
            put32(&mut options, len, stamp(now));
            put32(&mut options, len + 4, if answers { ts_recent } else { 0 });
            len += 8;
        }
        // What the peer offered, we agree to; if we began, we offer.
        if let Some(scale) = wscale
            && (!answers || bits.wscale().is_some())
        {
            options[len..len + 4].copy_from_slice(&[1, 3, 3, scale]);
            len += 4;
        }
        // A SYN that gets no answer goes without ECN the second time (RFC 3168 §6.1.1.1).
        let mut flags = SYN | if answers { ACK } else { 0 };
        if bits.has(Bits::ECN) && ecn_wanted && bits.retries() == 0 {
            flags |= if answers { ECE } else { ECE | CWR };
        }
        let key = self.core.key(flow);
        let ip = ip_len(key.addresses);
        let packet =
            out.packet(ClassId(self.core.flows[flow].class), &key.tuple(), ip + TCP_HEADER + len, Cut::WHOLE)?;
        let header = TcpHeader {
            local_port: key.local_port,
            remote_port: key.remote_port,
            seq: isn,
            ack: if answers { rcv_nxt } else { 0 },
            flags,
            window,
            options: &options[..len],
        };
        write_tcp(&mut packet[ip..], key.addresses, &header, false);
        self.core.ip_id = self.core.ip_id.wrapping_add(1);
        write_ip(packet, key.addresses, TCP, tos, ttl, self.core.ip_id);
        let octets = packet.len() as u64;
        let counters = self.core.counters(flow);
        counters.segments_out += 1;
        counters.octets_out += octets;
        counters.retransmit_syn += u64::from(bits.retries() > 0);
        let f = &mut self.core.flows[flow];
        f.bits.clear(Bits::HEAD | Bits::ACK_NOW | Bits::ACK_LATER);
        if bits.retries() == 0 {
            f.bits.set(Bits::TIMING);
            f.rtt_sent = stamp(now) as u16;
        }
        if !f.bits.has(Bits::RTX) {
            let rto = self.core.rto(flow);
            self.core.start_rtx(now, flow, rto);
        }
        Some(true)
    }

    fn write_datagram(&mut self, now: Nanos, flow: u32, out: &mut impl Output) -> Option<bool> {
        let f = &self.core.flows[flow];
        let (at, piece) = (f.piece_at, f.piece);
        if piece.len == 0 {
            return Some(false);
        }
        let key = self.core.key(flow);
        let ip = ip_len(key.addresses);
        let class = f.class;
        let len = ip + UDP_HEADER + piece.len as usize;
        let packet = out.packet(ClassId(class), &key.tuple(), len, Cut::WHOLE)?;
        self.app.copy(&self.core.flows[flow].state, &key.tuple(), piece, 0, &mut packet[ip + UDP_HEADER..]);
        write_udp(&mut packet[ip..], key.addresses, key.local_port, key.remote_port);
        self.core.ip_id = self.core.ip_id.wrapping_add(1);
        let class = &mut self.core.classes[usize::from(class)];
        write_ip(packet, key.addresses, UDP, class.tunables.tos, class.tunables.ttl, self.core.ip_id);
        class.counters.segments_out += 1;
        class.counters.octets_out += len as u64;
        class.counters.sent += u64::from(piece.len);
        let end = at.wrapping_add(piece.len);
        let f = &mut self.core.flows[flow];
        (f.snd_una, f.snd_nxt) = (end, end);
        self.core.drop_pieces(flow, end);
        if self.core.flows[flow].piece.len == 0 {
            self.core.release_extra(flow);
        }
        self.restart_idle(now, flow);
        Some(true)
    }
}

/// Of what was sent again between `una` and `high_rxt`, that which counts as lost, too (below `edge`): it is under way.
fn sent_twice(sacked: &crate::extra::Scoreboard, una: u32, high_rxt: u32, edge: u32) -> u32 {
    let to = min(high_rxt, edge);
    if le(to, una) { 0 } else { sacked.holes(una, to) }
}
