//! Reacts to acknowledgments and time-outs: congestion windows, losses, retransmission (RFC 5681,
//! 6582, 6675, 6298, 3168).

use std::ops::ControlFlow;

use squall_units::Nanos;

use crate::{
    Application, Congestion, Reason,
    bbr::{Ack, Bbr},
    congestion,
    extra::{Extra, Recovery},
    flow::{Bits, State},
    seq::{distance, le, lt},
    stack::Stack,
    wheel::{tick_after, ticks},
};

/// Number of duplicate acknowledgments that signal a loss (RFC 5681 §3.2; DupThresh of RFC 6675).
const DUP_THRESH: u8 = 3;

impl<A: Application> Stack<A> {
    /// Applies an acknowledgment of `acked` numbers; `flight` were outstanding before it.
    #[inline]
    pub(crate) fn congestion_ack(&mut self, now: Nanos, flow: u32, acked: u32, flight: u32) {
        let (f, class) = self.core.parts(flow);
        f.bits.set_dupacks(0);
        let (una, nxt) = (f.snd_una, f.snd_nxt);
        let mss = u32::from(f.mss);
        let limit = class.tunables.abc_limit;
        let limited = congestion::grows(f.cwnd, flight, f.snd_wnd, limit);
        if !f.has_extra() {
            // Slow start: a flow without an `Extra` had no loss, so it has no threshold.
            if limited {
                let acked = congestion::slow_start(acked, limit, mss);
                f.cwnd = f.cwnd.saturating_add(acked).min(1 << 30);
            }
            return;
        }
        let congestion = class.tunables.congestion;
        if congestion == Congestion::Bbr {
            return self.model_advance(now, flow);
        }
        let rtt = Nanos(u64::from(f.srtt.micros()) * 1000);
        let mut cwnd = f.cwnd;
        let extra = self.core.extra(flow).expect("looked for above");
        extra.sacked.acknowledge(una);
        if lt(extra.high_rxt, una) {
            extra.high_rxt = una;
        }
        let over = le(extra.recover, una);
        if over && extra.recovery == Recovery::None {
            // Kept near SND.UNA, because after 2 GiB an old number would be a later one.
            extra.recover = una;
        }
        let after_timeout = extra.recovery == Recovery::Loss;
        let mut head = false;
        match extra.recovery {
            Recovery::NewReno if over => {
                // Full acknowledgment (RFC 6582 §3.2, step 3, option 1): min(ssthresh, max(flight,
                // MSS) + MSS), because otherwise the end of recovery would send a burst.
                let ssthresh = extra.ssthresh.unwrap_or(cwnd);
                cwnd = ssthresh.min(nxt.wrapping_sub(una).max(mss) + mss);
                extra.recovery = Recovery::None;
            }
            Recovery::NewReno => {
                // Partial acknowledgment (RFC 6582 §3.2, step 3): the next segment was lost too.
                // The window shrinks by the acknowledged octets and grows by one segment.
                head = true;
                cwnd = cwnd.saturating_sub(acked);
                if acked >= mss {
                    cwnd += mss;
                }
                cwnd = cwnd.max(mss);
            }
            Recovery::Sack if over => {
                extra.recovery = Recovery::None;
                // The window stays at ssthresh, to which RFC 6675 §5, step 4.2, has set it.
            }
            Recovery::Sack => extra.note_again(una, nxt),
            Recovery::Reduced if over => extra.recovery = Recovery::None,
            Recovery::Reduced => (),
            Recovery::Loss | Recovery::None => {
                if over && extra.recovery == Recovery::Loss {
                    extra.recovery = Recovery::None;
                }
                if limited || after_timeout {
                    cwnd = match extra.ssthresh {
                        Some(ssthresh) if cwnd >= ssthresh => match congestion {
                            Congestion::Cubic => extra.cubic.grow(now, cwnd, acked, mss, rtt),
                            Congestion::NewReno | Congestion::Bbr => {
                                congestion::reno_grow(cwnd, acked, mss, &mut extra.counted)
                            }
                        },
                        // Slow start up to the threshold (RFC 3465). After a time-out one segment
                        // per ACK (L = 1, §2.3), because one ACK may cover data that left before
                        // the loss.
                        threshold => {
                            let counted = if after_timeout {
                                acked.min(mss)
                            } else {
                                congestion::slow_start(acked, limit, mss)
                            };
                            cwnd.saturating_add(counted).min(threshold.unwrap_or(u32::MAX))
                        }
                    };
                } else {
                    extra.cubic.hold();
                }
            }
        }
        let spare = extra.is_spare();
        let f = &mut self.core.flows[flow];
        f.cwnd = cwnd.min(1 << 30);
        if head {
            f.bits.set(Bits::HEAD);
            self.core.enqueue(flow);
        }
        if spare {
            self.core.release_extra(flow);
        }
    }

    /// Applies a duplicate ACK.
    pub(crate) fn duplicate_ack(&mut self, now: Nanos, flow: u32) {
        self.count_duplicate(flow);
        if self.core.class(flow).tunables.congestion == Congestion::Bbr {
            self.model(now, flow);
        }
    }

    /// Counts a duplicate ACK, and begins fast retransmit at the threshold (RFC 5681 §3.2, RFC 6582
    /// §3.2, RFC 6675 §5).
    fn count_duplicate(&mut self, flow: u32) {
        let f = &mut self.core.flows[flow];
        f.bits.set_dupacks(f.bits.dupacks() + 1);
        let (una, nxt, mss, dupacks) = (f.snd_una, f.snd_nxt, u32::from(f.mss), f.bits.dupacks());
        let sack = f.bits.has(Bits::SACK);
        let (cwnd, flight) = (f.cwnd, f.flight());
        let congestion = self.core.class(flow).tunables.congestion;
        let lost = sack
            && self
                .core
                .extra_ref(flow)
                .and_then(|e| e.sacked.lost_below(mss))
                .is_some_and(|edge| lt(una, edge));
        if dupacks < DUP_THRESH && !lost {
            // Limited transmit (RFC 3042) may send a segment.
            self.core.enqueue(flow);
            // Returns before an `Extra` is allocated: most duplicate ACKs come from reordering.
            return;
        }
        let extra = self.core.make_extra(flow);
        match extra.recovery {
            // BBR keeps its window, which has room for twice the path's.
            Recovery::NewReno if congestion == Congestion::Bbr => {}
            Recovery::NewReno => {
                // Each duplicate ACK shows that a segment has left the network (RFC 5681 §3.2, step
                // 4).
                self.core.flows[flow].cwnd = cwnd.saturating_add(mss);
                self.core.enqueue(flow);
            }
            Recovery::Sack if extra.are_lost_again(una, mss) => {
                // They left one after the other, so each segment that has not arrived is sent again,
                // even if it may be on its way. One by one, each would take a round trip.
                (extra.high_rxt, extra.again) = (una, (una, nxt));
                if let Some(bbr) = &mut extra.bbr {
                    bbr.lose_again();
                }
                // A lost retransmission is one more indication of congestion (RFC 5681 §4.3).
                let reduced_to = reduce(extra, congestion, cwnd, flight, mss);
                extra.ssthresh = reduced_to;
                let f = &mut self.core.flows[flow];
                f.cwnd = reduced_to.unwrap_or(cwnd);
                f.bits.set(Bits::HEAD);
                self.core.enqueue(flow);
            }
            Recovery::Sack | Recovery::Loss => {
                extra.note_again(una, nxt);
                self.core.enqueue(flow);
            }
            Recovery::None | Recovery::Reduced => {
                // RFC 6582 §3.2, step 1: duplicate ACKs below `recover` belong to the previous
                // recovery; they would reduce the window twice for one loss.
                if !sack && extra.ssthresh.is_some() && lt(una, extra.recover) {
                    return;
                }
                let reduced = extra.recovery == Recovery::Reduced;
                let reduced_to = if reduced {
                    // A mark has already reduced the window in this round trip; there is at most
                    // one reduction per round trip (RFC 3168 §6.1.2).
                    extra.ssthresh
                } else {
                    reduce(extra, congestion, cwnd, flight, mss)
                };
                if let Some(bbr) = &mut extra.bbr {
                    bbr.enter_recovery(cwnd, false);
                }
                extra.ssthresh = reduced_to;
                extra.recover = nxt;
                extra.high_rxt = una;
                extra.again = (una, nxt);
                extra.recovery = if sack { Recovery::Sack } else { Recovery::NewReno };
                let f = &mut self.core.flows[flow];
                // Without SACK the window is inflated by the three segments that have left the
                // network (RFC 5681 §3.2, step 3).
                f.cwnd = match reduced_to {
                    None => cwnd,
                    Some(ssthresh) if sack => ssthresh,
                    Some(ssthresh) => ssthresh + u32::from(DUP_THRESH) * mss,
                };
                f.bits.set(Bits::HEAD);
                self.core.enqueue(flow);
            }
        }
    }

    /// Reduces the window after the peer has echoed a mark, at most once per round trip (RFC 3168
    /// §6.1.2).
    pub(crate) fn ecn_reduce(&mut self, now: Nanos, flow: u32) {
        let real = now + self.core.lag;
        let f = &self.core.flows[flow];
        let (una, nxt, cwnd, flight) = (f.snd_una, f.snd_nxt, f.cwnd, f.flight());
        let mss = u32::from(f.mss);
        let congestion = self.core.class(flow).tunables.congestion;
        let extra = self.core.make_extra(flow);
        if extra.recovery != Recovery::None {
            return;
        }
        let inflight = extra.inflight(una, nxt, mss);
        if let Some(bbr) = &mut extra.bbr {
            bbr.marked(real, inflight);
        }
        let ssthresh = reduce(extra, congestion, cwnd, flight, mss);
        (extra.ssthresh, extra.recover, extra.recovery) = (ssthresh, nxt, Recovery::Reduced);
        let f = &mut self.core.flows[flow];
        f.cwnd = ssthresh.unwrap_or(cwnd);
        f.bits.set(Bits::CWR);
        self.core.counters(flow).ecn_reductions += 1;
    }

    /// Handles the timer for retransmission, persist, keepalive, TIME-WAIT or FIN-WAIT-2. Breaks
    /// when the flow is released.
    pub(crate) fn rtx_expired(&mut self, now: Nanos, flow: u32) -> ControlFlow<()> {
        let class = self.core.class(flow);
        let (retries_max, syn_retries, keepcnt) =
            (class.tunables.retries, class.tunables.syn_retries, class.tunables.keepcnt);
        let (keepintvl, fin_wait) = (ticks(class.tunables.keepintvl), class.tunables.fin_wait);
        let f = &mut self.core.flows[flow];
        let retries = f.bits.retries();
        let reason = match f.tcp_state() {
            State::TimeWait => {
                self.core.release(flow);
                return ControlFlow::Break(());
            }
            State::SynSent | State::SynReceived if retries >= syn_retries => {
                Some(Reason::ConnectTimeout)
            }
            State::SynSent | State::SynReceived => {
                f.bits.set(Bits::HEAD);
                None
            }
            _ if f.bits.has(Bits::PERSIST) => {
                // Unlimited while the peer answers (RFC 9293 §3.8.6.1, MUST-37). There are no
                // duplicate ACKs while the window is closed, so their field counts unanswered
                // probes.
                let unanswered = f.bits.dupacks();
                f.bits.set_dupacks(unanswered + 1);
                f.bits.set(Bits::PROBE);
                self.core.counters(flow).window_probes += 1;
                (unanswered >= DUP_THRESH && retries >= retries_max).then_some(Reason::Timeout)
            }
            State::FinWait2 if fin_wait > Nanos::ZERO => Some(Reason::Timeout),
            _ if f.flight() == 0 => {
                if retries >= keepcnt {
                    self.core.reset(flow);
                    self.finish(now, flow, Reason::KeepaliveTimeout);
                    return ControlFlow::Break(());
                }
                f.bits.set_retries(retries + 1);
                f.bits.set(Bits::PROBE);
                self.core.counters(flow).keepalive_probes += 1;
                self.core.enqueue(flow);
                self.core.start_rtx(now, flow, keepintvl);
                return ControlFlow::Continue(());
            }
            _ if retries >= retries_max => Some(Reason::Timeout),
            _ => {
                self.retransmission_timeout(flow);
                None
            }
        };
        if let Some(reason) = reason {
            self.finish(now, flow, reason);
            return ControlFlow::Break(());
        }
        let f = &mut self.core.flows[flow];
        f.bits.set_retries(retries + 1);
        // Karn's algorithm (RFC 6298 §3): a retransmitted segment gives no sample.
        f.bits.clear(Bits::TIMING);
        let rto = self.core.rto(flow);
        self.core.start_rtx(now, flow, rto);
        self.core.enqueue(flow);
        ControlFlow::Continue(())
    }

    /// Retransmits one segment, then all missing data in slow start (RFC 5681 §3.1, RFC 6582 §4,
    /// RFC 6675 §5.1).
    fn retransmission_timeout(&mut self, flow: u32) {
        let f = &self.core.flows[flow];
        let (una, nxt, mss, again) = (f.snd_una, f.snd_nxt, u32::from(f.mss), f.bits.retries() > 0);
        let (cwnd, flight) = (f.cwnd, f.flight());
        let congestion = self.core.class(flow).tunables.congestion;
        let extra = self.core.make_extra(flow);
        if let Some(bbr) = &mut extra.bbr {
            bbr.enter_timeout(cwnd, extra.recovery != Recovery::None);
        }
        // Only the first time-out of a segment lowers the threshold (RFC 5681 §3.1): repeated ones
        // would bring it down to two segments.
        if !again {
            let flight = flight_in_window(flight, cwnd, mss);
            extra.ssthresh = match congestion {
                Congestion::Cubic => Some(extra.cubic.reduce_after_timeout(cwnd, flight, mss)),
                Congestion::NewReno => Some(congestion::reno_reduce(flight, mss)),
                Congestion::Bbr => None,
            };
        } else {
            // A second time-out: the peer may have discarded data that it had selectively
            // acknowledged (RFC 2018 §8).
            extra.sacked.clear();
        }
        extra.recovery = Recovery::Loss;
        (extra.recover, extra.high_rxt) = (nxt, una);
        let f = &mut self.core.flows[flow];
        // Loss window: one segment (RFC 5681 §3.1).
        f.cwnd = mss;
        f.bits.set(Bits::HEAD);
        f.bits.set_dupacks(0);
        self.core.counters(flow).rto_timeouts += 1;
    }

    // BBR.

    /// Starts the model of a flow whose handshake is complete.
    pub(crate) fn begin_model(&mut self, now: Nanos, flow: u32) {
        let real = now + self.core.lag;
        let f = &self.core.flows[flow];
        let (una, cwnd, srtt, mss) = (f.snd_una, f.cwnd, f.srtt.micros(), u32::from(f.mss));
        let extra = self.core.make_extra(flow);
        extra.recover = una;
        extra.bbr = Some(Box::new(Bbr::new(real, una, cwnd, srtt, mss)));
    }

    /// Applies an acknowledgment that has advanced SND.UNA: recovery, then the model.
    fn model_advance(&mut self, now: Nanos, flow: u32) {
        let f = &self.core.flows[flow];
        let (una, nxt, mut cwnd) = (f.snd_una, f.snd_nxt, f.cwnd);
        let extra = self.core.make_extra(flow);
        extra.sacked.acknowledge(una);
        if lt(extra.high_rxt, una) {
            extra.high_rxt = una;
        }
        extra.note_again(una, nxt);
        let over = le(extra.recover, una);
        // A partial acknowledgment (RFC 6582 §3.2, step 3): the next segment was lost too.
        let partial = extra.recovery == Recovery::NewReno && !over;
        if over {
            if !matches!(extra.recovery, Recovery::None | Recovery::Reduced)
                && let Some(bbr) = &mut extra.bbr
            {
                cwnd = bbr.restore_cwnd(cwnd);
            }
            extra.recovery = Recovery::None;
            // Kept near SND.UNA, because after 2 GiB an old number would be a later one.
            extra.recover = una;
        }
        self.core.flows[flow].cwnd = cwnd;
        self.model(now, flow);
        if partial {
            self.core.flows[flow].bits.set(Bits::HEAD);
            self.core.enqueue(flow);
        }
    }

    /// Passes an acknowledgment to the model, which sets the congestion window.
    fn model(&mut self, now: Nanos, flow: u32) {
        let now = now + self.core.lag;
        let f = &self.core.flows[flow];
        let (una, nxt, cwnd, mss) = (f.snd_una, f.snd_nxt, f.cwnd, u32::from(f.mss));
        let sack = f.bits.has(Bits::SACK);
        let Some(extra) = self.core.extra(flow) else { return };
        let lost_below = match extra.recovery {
            // Without SACK, the segment at SND.UNA is lost.
            Recovery::NewReno => una.wrapping_add(mss),
            _ => extra.lost_below(una, mss),
        };
        let inflight = extra.inflight(una, nxt, mss);
        let recovering = matches!(extra.recovery, Recovery::Sack | Recovery::NewReno);
        let Extra { bbr: Some(bbr), sacked, .. } = extra else { return };
        let ack = Ack { now, una, nxt, lost_below, inflight, cwnd, mss, sack, recovering };
        self.core.flows[flow].cwnd = bbr.acknowledged(&ack, sacked);
    }

    /// Whether the pace holds back the flow's next packet. If so, the wheel wakes the flow for it.
    pub(crate) fn is_paced(&mut self, now: Nanos, flow: u32) -> bool {
        let bbr = self.core.extra(flow).and_then(|extra| extra.bbr.as_mut());
        let Some(at) = bbr.and_then(|bbr| bbr.paced_until(now)) else { return false };
        self.core.wake(now, flow, tick_after(at));
        true
    }

    /// Notes that the numbers from `from` to `to` have left, `again` or for the first time.
    pub(crate) fn model_sent(&mut self, now: Nanos, flow: u32, from: u32, to: u32, again: bool) {
        let real = now + self.core.lag;
        let f = &self.core.flows[flow];
        let (una, nxt, cwnd, mss) = (f.snd_una, f.snd_nxt, f.cwnd, u32::from(f.mss));
        let Some(extra) = self.core.extra(flow) else { return };
        if extra.bbr.is_none() || from == to {
            return;
        }
        // In these phases, octets that are sent again count as lost until the caller notes it.
        let lost = again && matches!(extra.recovery, Recovery::Sack | Recovery::Loss);
        let more = if lost { distance(from, to) } else { 0 };
        let inflight = extra.inflight(una, nxt, mss) + more;
        if let Some(bbr) = &mut extra.bbr {
            bbr.sent(now, real, (from, to), (inflight, cwnd), again);
        }
    }

    /// Notes that the application has nothing to send, although the window may have room.
    pub(crate) fn model_has_no_data(&mut self, flow: u32) {
        let f = &self.core.flows[flow];
        let (una, nxt, cwnd, mss) = (f.snd_una, f.snd_nxt, f.cwnd, u32::from(f.mss));
        let Some(extra) = self.core.extra(flow) else { return };
        let inflight = extra.inflight(una, nxt, mss);
        if let Some(bbr) = &mut extra.bbr
            // Else lost segments may wait for the window, not for the application.
            && inflight.saturating_add(mss) <= cwnd
        {
            bbr.limited_by_application(inflight);
        }
    }

    /// Data is sent with nothing in flight: the time before does not count for CUBIC's curve, and
    /// BBR sends at the estimated bandwidth. Returns whether the flow has BBR, whose window needs no
    /// restart.
    pub(crate) fn model_restarts(&mut self, now: Nanos, flow: u32) -> bool {
        let real = now + self.core.lag;
        let cwnd = self.core.flows[flow].cwnd;
        let Some(extra) = self.core.extra(flow) else { return false };
        extra.cubic.hold();
        let Some(bbr) = &mut extra.bbr else { return false };
        self.core.flows[flow].cwnd = bbr.restart_from_idle(real, cwnd);
        true
    }
}

/// Outstanding octets, at most what the window and limited transmit allowed: in a long recovery,
/// most octets above SND.UNA have arrived, and would raise the threshold.
fn flight_in_window(flight: u32, cwnd: u32, mss: u32) -> u32 {
    flight.min(cwnd.saturating_add(2 * mss))
}

/// The threshold after a loss or a mark with `flight` octets outstanding; `None`: BBR has none.
fn reduce(
    extra: &mut Extra,
    congestion: Congestion,
    cwnd: u32,
    flight: u32,
    mss: u32,
) -> Option<u32> {
    let flight = flight_in_window(flight, cwnd, mss);
    match congestion {
        Congestion::Cubic => Some(extra.cubic.reduce(cwnd, flight, mss)),
        Congestion::NewReno => Some(congestion::reno_reduce(flight, mss)),
        Congestion::Bbr => None,
    }
}
