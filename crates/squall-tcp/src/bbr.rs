//! BBR version 3: congestion control by a model of the path (draft-ietf-ccwg-bbr-05, "the draft"),
//! with the draft's samples of the delivery rate.
//!
//! The steps have the draft's order and names. Volumes are octets of payload, rates octets per
//! second. Not in the model: the undo of spurious recoveries, because the stack does not detect
//! them; without SACK, duplicate ACKs deliver nothing (the next advance of SND.UNA does).

use std::collections::VecDeque;

use squall_units::{Nanos, SplitMix64};

use crate::{
    extra::Scoreboard,
    seq::{distance, le, lt, max, min},
};

const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
/// Round trips after which Drain ends, even if more than the estimate is in flight.
const DRAIN_ROUNDS: u32 = 3;
const PROBE_UP_PACING_GAIN: f64 = 1.25;
const PROBE_DOWN_PACING_GAIN: f64 = 0.9;
const DEFAULT_CWND_GAIN: f64 = 2.0;
const PROBE_UP_CWND_GAIN: f64 = 2.25;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// Share of a round's data whose loss means that too much was in flight.
const LOSS_THRESH: f64 = 0.02;
const BETA: f64 = 0.7;
/// Share of `inflight_longterm` that is left free while cruising.
const HEADROOM: f64 = 0.15;
/// Pacing stays below the estimated bandwidth by this share.
const PACING_MARGIN: f64 = 0.01;
/// Acknowledgments of a round that show losses, from which on Startup ends (StartupFullLossCnt).
const STARTUP_LOSS_EVENTS: u32 = 6;
const MIN_RTT_FILTER: Nanos = Nanos(10_000_000_000);
const PROBE_RTT_INTERVAL: Nanos = Nanos(5_000_000_000);
const PROBE_RTT_DURATION: Nanos = Nanos(200_000_000);
/// Segments of the least window (MinPipeCwnd).
const MIN_PIPE: f64 = 4.0;
/// Rounds after which the older of the two maxima of `extra_acked` is dropped: together they cover
/// 5 to 10 rounds (BBRExtraAckedFilterLen is 10).
const EXTRA_ACKED_ROUNDS: u32 = 5;
/// Time of the draft's send quantum.
const QUANTUM: Nanos = Nanos(1_000_000);
const MAX_QUANTUM: f64 = 65_536.0;
/// The lag of a flow, against its pace, that it may still make up for, as a burst: a timer fires up
/// to 65 us late (a tick of the wheel), and a busy worker later.
const PACING_CREDIT: Nanos = QUANTUM;
/// Longest wait between two packets, so that an estimate of zero cannot stop a flow.
const MAX_PACING_DELAY: f64 = 1.0;
/// Maximum number of entries for octets in flight, against peers with large windows and short
/// segments. Further packets extend the last entry, which makes samples coarser.
const MAX_SENT: usize = 8192;

/// State of the algorithm; the four of ProbeBW are its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Startup,
    Drain,
    ProbeBwDown,
    ProbeBwCruise,
    ProbeBwRefill,
    ProbeBwUp,
    ProbeRtt,
}

impl Phase {
    /// The draft's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Drain => "Drain",
            Self::ProbeBwDown => "ProbeBW_DOWN",
            Self::ProbeBwCruise => "ProbeBW_CRUISE",
            Self::ProbeBwRefill => "ProbeBW_REFILL",
            Self::ProbeBwUp => "ProbeBW_UP",
            Self::ProbeRtt => "ProbeRTT",
        }
    }

    fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain => DRAIN_PACING_GAIN,
            Self::ProbeBwDown => PROBE_DOWN_PACING_GAIN,
            Self::ProbeBwUp => PROBE_UP_PACING_GAIN,
            Self::ProbeBwCruise | Self::ProbeBwRefill | Self::ProbeRtt => 1.0,
        }
    }

    fn cwnd_gain(self) -> f64 {
        match self {
            Self::ProbeBwUp => PROBE_UP_CWND_GAIN,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => DEFAULT_CWND_GAIN,
        }
    }

    fn is_probe_bw(self) -> bool {
        matches!(
            self,
            Self::ProbeBwDown | Self::ProbeBwCruise | Self::ProbeBwRefill | Self::ProbeBwUp
        )
    }

    /// Whether the sender accelerates (BBRIsProbingBW).
    fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::ProbeBwRefill | Self::ProbeBwUp)
    }
}

/// The state of feedback on the last phase that accelerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// Octets that were sent at once, and the connection's state at that time (the draft's P).
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: u32,
    end: u32,
    send_time: Nanos,
    first_send_time: Nanos,
    delivered: u64,
    delivered_time: Nanos,
    lost_before: u64,
    /// C.inflight after it was sent.
    tx_in_flight: u32,
    /// How many of its octets are selectively acknowledged, and how many counted as lost.
    sacked: u32,
    lost: u32,
    app_limited: bool,
    /// Retransmitted: gives no round-trip time.
    again: bool,
    /// Does not count as lost until [`Bbr::lose_again`].
    spared: bool,
}

impl Sent {
    fn len(&self) -> u32 {
        distance(self.from, self.end)
    }
}

/// The connection's state at an acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    /// Real time.
    pub now: Nanos,
    pub una: u32,
    pub nxt: u32,
    /// Octets below this number that are not selectively acknowledged are lost.
    pub lost_below: u32,
    /// C.inflight, after the acknowledgment.
    pub inflight: u32,
    pub cwnd: u32,
    pub mss: u32,
    pub sack: bool,
    /// In fast recovery.
    pub recovering: bool,
}

/// The draft's RS: the sample of delivery that an acknowledgment gives.
#[derive(Clone, Copy, Debug)]
struct Sample {
    prior_delivered: u64,
    lost_before: u64,
    tx_in_flight: f64,
    app_limited: bool,
    rtt: Option<Nanos>,
    newly_acked: f64,
    /// Octets delivered since the packet was sent.
    delivered: f64,
    /// 0: not valid.
    delivery_rate: f64,
}

#[derive(Debug)]
pub(crate) struct Bbr {
    random: SplitMix64,
    mss: f64,
    initial_cwnd: f64,
    cwnd: f64,
    // Samples of the delivery rate.
    /// Octets in flight, in the order of sequence numbers.
    sent: VecDeque<Sent>,
    una: u32,
    /// Octets that are cumulatively acknowledged; `delivered` has the selectively acknowledged,
    /// too.
    acked: u64,
    delivered: u64,
    delivered_time: Nanos,
    first_send_time: Nanos,
    lost: u64,
    /// Until this number of octets is delivered, samples are limited by the application; and the
    /// window was fully used.
    app_limited: u64,
    cwnd_limited: u64,
    // Pacing, on the timer clock.
    pacing_rate: f64,
    next_send_time: Nanos,
    waits: bool,
    send_quantum: f64,
    // State.
    phase: Phase,
    ack_phase: AckPhase,
    round_start: bool,
    next_round_delivered: u64,
    round_count: u32,
    drain_start_round: u32,
    idle_restart: bool,
    prior_cwnd: f64,
    // Bandwidth: the maxima of the previous cycle of ProbeBW and of this one.
    bw_filter: [f64; 2],
    bw: f64,
    bw_latest: f64,
    bw_shortterm: f64,
    full_bw: f64,
    full_bw_count: u32,
    full_bw_now: bool,
    full_bw_reached: bool,
    // Volume.
    inflight_latest: f64,
    inflight_shortterm: f64,
    inflight_longterm: f64,
    // Losses.
    loss_in_round: bool,
    loss_round_start: bool,
    loss_round_delivered: u64,
    loss_events: u32,
    // Aggregated acknowledgments.
    extra_acked: [f64; 2],
    extra_acked_rounds: u32,
    extra_acked_delivered: f64,
    extra_acked_start: Nanos,
    // Round-trip times.
    min_rtt: Option<Nanos>,
    min_rtt_stamp: Nanos,
    probe_rtt_min: Option<Nanos>,
    probe_rtt_stamp: Nanos,
    probe_rtt_expired: bool,
    probe_rtt_done: Option<Nanos>,
    probe_rtt_round_done: bool,
    // Probes for bandwidth.
    cycle_stamp: Nanos,
    probe_wait: Nanos,
    rounds_since_probe: u32,
    /// The data of a probe is in flight, and no reaction to its loss has followed.
    probe_samples: bool,
    probe_up_rounds: i32,
    /// Octets by which `inflight_longterm` grows per acknowledged window.
    probe_up_growth: f64,
}

impl Bbr {
    /// The state of a connection whose handshake ends `now` (real time). `srtt`: microseconds, 0
    /// without a sample.
    pub fn new(now: Nanos, una: u32, cwnd: u32, srtt: u32, mss: u32) -> Self {
        let initial_cwnd = f64::from(cwnd);
        // BBRInitPacingRate: 1 ms without a sample.
        let srtt = if srtt == 0 { 1e-3 } else { f64::from(srtt) / 1e6 };
        let mut bbr = Self {
            // The initial sequence number depends on the stack's key and the ends: runs repeat.
            random: SplitMix64(u64::from(una)),
            mss: f64::from(mss),
            initial_cwnd,
            cwnd: initial_cwnd,
            sent: VecDeque::new(),
            una,
            acked: 0,
            delivered: 0,
            delivered_time: now,
            first_send_time: now,
            lost: 0,
            app_limited: 0,
            cwnd_limited: 0,
            pacing_rate: STARTUP_PACING_GAIN * initial_cwnd / srtt,
            next_send_time: Nanos::ZERO,
            waits: false,
            send_quantum: 0.0,
            phase: Phase::Startup,
            ack_phase: AckPhase::Init,
            round_start: false,
            next_round_delivered: 0,
            round_count: 0,
            drain_start_round: 0,
            idle_restart: false,
            prior_cwnd: 0.0,
            bw_filter: [0.0; 2],
            bw: 0.0,
            bw_latest: 0.0,
            bw_shortterm: f64::INFINITY,
            full_bw: 0.0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            inflight_latest: 0.0,
            inflight_shortterm: f64::INFINITY,
            inflight_longterm: f64::INFINITY,
            loss_in_round: false,
            loss_round_start: false,
            loss_round_delivered: 0,
            loss_events: 0,
            extra_acked: [0.0; 2],
            extra_acked_rounds: 0,
            extra_acked_delivered: 0.0,
            extra_acked_start: now,
            min_rtt: None,
            min_rtt_stamp: now,
            probe_rtt_min: None,
            probe_rtt_stamp: now,
            probe_rtt_expired: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            cycle_stamp: now,
            probe_wait: Nanos::ZERO,
            rounds_since_probe: 0,
            probe_samples: false,
            probe_up_rounds: 0,
            probe_up_growth: 0.0,
        };
        bbr.set_send_quantum();
        bbr
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    pub fn pacing_rate(&self) -> f64 {
        self.pacing_rate
    }

    /// Allocated octets.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.sent.capacity() * size_of::<Sent>()
    }

    // Pacing.

    /// When the next packet may leave, if that is after `now` (timer clock). The caller then has to
    /// wait until that time.
    pub fn paced_until(&mut self, now: Nanos) -> Option<Nanos> {
        self.waits = self.next_send_time > now;
        self.waiting()
    }

    /// Until when the flow waits, if it does.
    pub fn waiting(&self) -> Option<Nanos> {
        self.waits.then_some(self.next_send_time)
    }

    pub fn stop_waiting(&mut self) {
        self.waits = false;
    }

    /// Most octets of one packet (C.send_quantum).
    pub fn quantum(&self) -> u32 {
        self.send_quantum as u32
    }

    // Per-transmit steps.

    /// Notes that `from..to` has left, at `now` of the timer clock, `real` time. `inflight` and
    /// `cwnd` are those after it.
    pub fn sent(
        &mut self,
        now: Nanos,
        real: Nanos,
        (from, to): (u32, u32),
        (inflight, cwnd): (u32, u32),
        again: bool,
    ) {
        let len = distance(from, to);
        let delay = (f64::from(len) / self.pacing_rate).min(MAX_PACING_DELAY);
        self.next_send_time = self.next_send_time.max(now.saturating_sub(PACING_CREDIT))
            + Nanos::from_secs_f64(delay);
        if inflight <= len {
            (self.first_send_time, self.delivered_time) = (real, real);
        }
        if f64::from(inflight) + self.mss > f64::from(cwnd) {
            self.cwnd_limited = self.delivered + u64::from(inflight);
        }
        let new = Sent {
            from,
            end: to,
            send_time: real,
            first_send_time: self.first_send_time,
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            lost_before: self.lost,
            tx_in_flight: inflight,
            sacked: 0,
            lost: 0,
            app_limited: self.app_limited > 0,
            again,
            spared: again,
        };
        if again {
            return self.resent(new);
        }
        let full = self.sent.len() >= MAX_SENT;
        match self.sent.back_mut() {
            // One entry for a burst, as for a GSO packet: all of it has the same state.
            Some(last)
                if last.end == from
                    && (full
                        || !last.again
                            && last.send_time == real
                            && last.delivered == new.delivered
                            && f64::from(last.len() + len) <= MAX_QUANTUM) =>
            {
                (last.end, last.tx_in_flight) = (to, inflight);
            }
            _ => self.sent.push_back(new),
        }
    }

    /// Replaces the part of the entries that was sent again. With [`MAX_SENT`] entries, it replaces
    /// whole entries, so that none is added: a loss in the rest of them is then only counted after
    /// a time-out.
    fn resent(&mut self, new: Sent) {
        let full = self.sent.len() >= MAX_SENT;
        let mut at = self.sent.partition_point(|s| le(s.end, new.from));
        while let Some(old) = self.sent.get(at).copied()
            && lt(old.from, new.end)
        {
            if full {
                self.sent[at] = Sent { from: old.from, end: old.end, ..new };
                at += 1;
                continue;
            }
            self.sent.remove(at);
            let part = |from: u32, end: u32, lost: u32| {
                let lost = lost.min(distance(from, end));
                Sent { from, end, lost, sacked: 0, ..old }
            };
            if lt(old.from, new.from) {
                self.sent.insert(at, part(old.from, new.from, old.lost));
                at += 1;
            }
            let (from, end) = (max(old.from, new.from), min(old.end, new.end));
            self.sent.insert(at, Sent { from, end, ..new });
            at += 1;
            if lt(new.end, old.end) {
                // A cut at most: only the rest of this entry follows.
                let before = distance(old.from, new.end);
                let rest = part(new.end, old.end, old.lost.saturating_sub(before));
                return self.sent.insert(at, rest);
            }
        }
    }

    /// MarkConnectionAppLimited: there is no data to send although the window has room.
    pub fn limited_by_application(&mut self, inflight: u32) {
        self.app_limited = (self.delivered + u64::from(inflight)).max(1);
    }

    /// BBRHandleRestartFromIdle, before the first packet after a time with nothing in flight.
    /// Returns the congestion window.
    pub fn restart_from_idle(&mut self, real: Nanos, cwnd: u32) -> u32 {
        self.cwnd = f64::from(cwnd);
        if self.app_limited > 0 {
            self.idle_restart = true;
            self.extra_acked_start = real;
            if self.phase.is_probe_bw() {
                self.set_pacing_rate(1.0);
            } else if self.phase == Phase::ProbeRtt {
                self.check_probe_rtt_done(real);
            }
        }
        self.cwnd as u32
    }

    // Per-ACK steps.

    /// BBRUpdateOnACK. Returns the congestion window.
    pub fn acknowledged(&mut self, ack: &Ack, sacked: &Scoreboard) -> u32 {
        (self.mss, self.cwnd) = (f64::from(ack.mss), f64::from(ack.cwnd));
        let sample = self.rate_sample(ack, sacked);
        let lost = self.lost;
        self.detect_losses(ack, sacked);
        if let Some(sample) = sample {
            self.update_model_and_state(ack, &sample, self.lost > lost);
            self.set_pacing_rate(self.phase.pacing_gain());
            self.set_send_quantum();
            self.set_cwnd(&sample);
        }
        self.cwnd as u32
    }

    /// GenerateRateSample, from the packet that was sent last of those that are now delivered.
    /// `None`: nothing was delivered.
    fn rate_sample(&mut self, ack: &Ack, sacked: &Scoreboard) -> Option<Sample> {
        self.acked += u64::from(distance(self.una, ack.una));
        self.una = ack.una;
        let mut above = 0;
        if !sacked.is_empty() {
            above = distance(ack.una, ack.nxt) - sacked.holes(ack.una, ack.nxt);
        }
        let all = self.acked + u64::from(above);
        let newly = all.saturating_sub(self.delivered);
        if newly > 0 {
            (self.delivered, self.delivered_time) = (all, ack.now);
        }
        let newest = self.take_delivered(ack.una, sacked);
        if newly == 0 {
            return None;
        }
        let packet = newest?;
        self.first_send_time = packet.send_time;
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let send_elapsed = packet.send_time.saturating_sub(packet.first_send_time);
        let ack_elapsed = ack.now.saturating_sub(packet.delivered_time);
        let interval = send_elapsed.max(ack_elapsed);
        let delivered = (self.delivered - packet.delivered) as f64;
        // Shorter than the round-trip time: acknowledgments were compressed on the way.
        let valid = interval > Nanos::ZERO && self.min_rtt.is_none_or(|rtt| interval >= rtt);
        Some(Sample {
            prior_delivered: packet.delivered,
            lost_before: packet.lost_before,
            tx_in_flight: f64::from(packet.tx_in_flight),
            app_limited: packet.app_limited,
            rtt: (!packet.again).then(|| ack.now.saturating_sub(packet.send_time)),
            newly_acked: newly as f64,
            delivered,
            delivery_rate: if valid { delivered / interval.as_secs_f64() } else { 0.0 },
        })
    }

    /// Removes acknowledged octets, and notes selectively acknowledged ones. Returns the entry
    /// that was sent last of those with newly delivered octets.
    fn take_delivered(&mut self, una: u32, sacked: &Scoreboard) -> Option<Sent> {
        let mut newest: Option<Sent> = None;
        let mut consider = |sent: Sent| {
            if newest.is_none_or(|other| other.send_time <= sent.send_time) {
                newest = Some(sent);
            }
        };
        while let Some(first) = self.sent.front_mut()
            && lt(first.from, una)
        {
            if first.sacked < first.len() {
                consider(*first);
            }
            if lt(una, first.end) {
                first.from = una;
                first.sacked = first.len() - sacked.holes(una, first.end);
                first.lost = first.lost.min(first.len());
                break;
            }
            self.sent.pop_front();
        }
        if let Some(highest) = sacked.highest() {
            for sent in self.sent.iter_mut().take_while(|sent| lt(sent.from, highest)) {
                if sent.sacked == sent.len() {
                    continue;
                }
                let now = sent.len() - sacked.holes(sent.from, sent.end);
                if now > sent.sacked {
                    sent.sacked = now;
                    consider(*sent);
                }
            }
        }
        newest
    }

    /// Per-loss steps, for all octets that were found to be lost.
    fn detect_losses(&mut self, ack: &Ack, sacked: &Scoreboard) {
        for at in 0..self.sent.len() {
            let sent = self.sent[at];
            if le(ack.lost_below, sent.from) {
                break;
            }
            if sent.spared || sent.sacked == sent.len() {
                continue;
            }
            let lost = sacked.holes(sent.from, min(sent.end, ack.lost_below));
            if lost > sent.lost {
                self.sent[at].lost = lost;
                self.lost += u64::from(lost - sent.lost);
                self.handle_lost_packet(&sent, lost - sent.lost, ack);
            }
        }
    }

    fn handle_lost_packet(&mut self, packet: &Sent, size: u32, ack: &Ack) {
        self.note_loss();
        if !self.probe_samples {
            return;
        }
        let tx_in_flight = f64::from(packet.tx_in_flight);
        let lost = (self.lost - packet.lost_before) as f64;
        if is_inflight_too_high(lost, tx_in_flight, ack.sack) {
            // BBRInflightAtLoss: at what volume the losses crossed the threshold.
            let size = f64::from(size);
            let (inflight_prev, lost_prev) = (tx_in_flight - size, lost - size);
            let prefix = (LOSS_THRESH * inflight_prev - lost_prev) / (1.0 - LOSS_THRESH);
            let at_loss = inflight_prev + prefix.max(0.0);
            self.handle_inflight_too_high(ack.now, at_loss, packet.app_limited);
        }
    }

    fn note_loss(&mut self) {
        if !self.loss_in_round {
            self.loss_round_delivered = self.delivered;
        }
        self.loss_in_round = true;
    }

    fn handle_inflight_too_high(&mut self, now: Nanos, tx_in_flight: f64, app_limited: bool) {
        // One reaction to each probe.
        self.probe_samples = false;
        if !app_limited {
            self.inflight_longterm = tx_in_flight.max(self.target_inflight() * BETA);
        }
        if self.phase == Phase::ProbeBwUp {
            self.start_probe_bw_down(now);
        }
    }

    /// The peer has echoed a mark (RFC 3168): it counts as a loss, at most once a round trip, which
    /// the caller sees to. The draft does not react to marks.
    pub fn marked(&mut self, now: Nanos, inflight: u32) {
        self.note_loss();
        if self.phase == Phase::Startup {
            self.queue_too_high_in_startup();
        } else if self.probe_samples {
            self.handle_inflight_too_high(now, f64::from(inflight), false);
        }
    }

    /// BBROnEnterFastRecovery.
    pub fn enter_recovery(&mut self, cwnd: u32, in_recovery: bool) {
        self.cwnd = f64::from(cwnd);
        self.save_cwnd(in_recovery);
    }

    /// All in flight is sent again, but not because of congestion: it does not count as lost.
    pub fn send_all_again(&mut self) {
        self.sent.iter_mut().for_each(|sent| (sent.again, sent.spared) = (true, true));
    }

    /// BBROnEnterRTO: all in flight is lost, the retransmitted octets, too.
    pub fn enter_timeout(&mut self, cwnd: u32, in_recovery: bool) {
        self.enter_recovery(cwnd, in_recovery);
        // As Linux: the short-term bound starts from the window before the time-out.
        if !self.phase.is_probing() && self.inflight_shortterm.is_infinite() {
            self.inflight_shortterm = self.prior_cwnd;
        }
        self.lose_again();
    }

    /// Retransmissions count as lost, too, if they are found to be.
    pub fn lose_again(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.spared = false);
    }

    /// BBRRestoreCwnd, at the end of a recovery. Returns the congestion window.
    pub fn restore_cwnd(&mut self, cwnd: u32) -> u32 {
        self.cwnd = f64::from(cwnd).max(self.prior_cwnd);
        self.cwnd as u32
    }

    fn save_cwnd(&mut self, in_recovery: bool) {
        self.prior_cwnd = if in_recovery || self.phase == Phase::ProbeRtt {
            self.prior_cwnd.max(self.cwnd)
        } else {
            self.cwnd
        };
    }

    fn update_model_and_state(&mut self, ack: &Ack, rs: &Sample, losses: bool) {
        self.update_latest_delivery_signals(rs);
        self.update_congestion_signals(rs);
        self.update_ack_aggregation(ack, rs);
        self.check_full_bw_reached(rs);
        self.check_startup_done(ack, rs, losses);
        self.check_drain_done(ack);
        self.update_probe_bw_cycle_phase(ack, rs);
        self.update_min_rtt(ack, rs);
        self.check_probe_rtt(ack);
        if self.loss_round_start {
            (self.bw_latest, self.inflight_latest) = (rs.delivery_rate, rs.delivered);
        }
        self.bound_bw_for_model();
    }

    fn update_latest_delivery_signals(&mut self, rs: &Sample) {
        self.bw_latest = self.bw_latest.max(rs.delivery_rate);
        self.inflight_latest = self.inflight_latest.max(rs.delivered);
        self.loss_round_start = rs.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = self.delivered;
        }
    }

    fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        (self.bw_latest, self.inflight_latest) = (0.0, 0.0);
    }

    fn update_congestion_signals(&mut self, rs: &Sample) {
        self.update_max_bw(rs);
        if !self.loss_round_start {
            return;
        }
        if self.loss_in_round && !self.phase.is_probing() {
            self.adapt_lower_bounds();
        }
        self.loss_in_round = false;
    }

    /// BBRInitLowerBounds and BBRLossLowerBounds, once a round with losses.
    fn adapt_lower_bounds(&mut self) {
        if self.bw_shortterm.is_infinite() {
            self.bw_shortterm = self.max_bw();
        }
        if self.inflight_shortterm.is_infinite() {
            self.inflight_shortterm = self.cwnd;
        }
        self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
        self.inflight_shortterm = self.inflight_latest.max(BETA * self.inflight_shortterm);
    }

    fn reset_short_term_model(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (f64::INFINITY, f64::INFINITY);
    }

    fn max_bw(&self) -> f64 {
        self.bw_filter[0].max(self.bw_filter[1])
    }

    fn update_max_bw(&mut self, rs: &Sample) {
        self.round_start = rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count = self.round_count.wrapping_add(1);
            self.rounds_since_probe += 1;
        }
        if rs.delivery_rate > 0.0 && (rs.delivery_rate >= self.max_bw() || !rs.app_limited) {
            self.bw_filter[1] = self.bw_filter[1].max(rs.delivery_rate);
        }
    }

    fn advance_max_bw_filter(&mut self) {
        // Without a sample in this cycle, the older one stays.
        if self.bw_filter[1] > 0.0 {
            self.bw_filter = [self.bw_filter[1], 0.0];
        }
    }

    fn start_round(&mut self) {
        self.next_round_delivered = self.delivered;
    }

    fn bound_bw_for_model(&mut self) {
        self.bw = self.max_bw().min(self.bw_shortterm);
    }

    fn update_ack_aggregation(&mut self, ack: &Ack, rs: &Sample) {
        if self.round_start {
            self.extra_acked_rounds += 1;
            let most = if self.full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
            if self.extra_acked_rounds >= most {
                self.extra_acked_rounds = 0;
                self.extra_acked = [self.extra_acked[1], 0.0];
            }
        }
        let interval = ack.now.saturating_sub(self.extra_acked_start);
        let mut expected = self.bw * interval.as_secs_f64();
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0.0;
            self.extra_acked_start = ack.now;
            expected = 0.0;
        }
        self.extra_acked_delivered += rs.newly_acked;
        let extra = (self.extra_acked_delivered - expected).min(self.cwnd);
        self.extra_acked[1] = self.extra_acked[1].max(extra);
    }

    fn reset_full_bw(&mut self) {
        (self.full_bw, self.full_bw_count, self.full_bw_now) = (0.0, 0, false);
    }

    fn check_full_bw_reached(&mut self, rs: &Sample) {
        if self.full_bw_now || !self.round_start || rs.app_limited {
            return;
        }
        if rs.delivery_rate >= self.full_bw * 1.25 {
            self.reset_full_bw();
            self.full_bw = rs.delivery_rate;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= 3;
        self.full_bw_reached |= self.full_bw_now;
    }

    fn check_startup_done(&mut self, ack: &Ack, rs: &Sample, losses: bool) {
        self.check_startup_high_loss(ack, rs, losses);
        if self.phase == Phase::Startup && self.full_bw_reached {
            self.phase = Phase::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    fn check_startup_high_loss(&mut self, ack: &Ack, rs: &Sample, losses: bool) {
        if self.full_bw_reached {
            return;
        }
        self.loss_events += u32::from(losses);
        let events = if ack.sack { STARTUP_LOSS_EVENTS } else { 1 };
        let lost = (self.lost - rs.lost_before) as f64;
        if self.loss_round_start
            && ack.recovering
            && self.loss_events >= events
            && is_inflight_too_high(lost, rs.tx_in_flight, ack.sack)
        {
            self.queue_too_high_in_startup();
        }
        if self.loss_round_start {
            self.loss_events = 0;
        }
    }

    fn queue_too_high_in_startup(&mut self) {
        self.full_bw_reached = true;
        self.inflight_longterm = self.bdp(self.bw).max(self.inflight_latest);
    }

    fn check_drain_done(&mut self, ack: &Ack) {
        let rounds = self.round_count.wrapping_sub(self.drain_start_round);
        let drained = f64::from(ack.inflight) <= self.inflight(1.0);
        if self.phase == Phase::Drain && (drained || rounds > DRAIN_ROUNDS) {
            self.start_probe_bw_down(ack.now);
        }
    }

    // ProbeBW.

    fn start_probe_bw_down(&mut self, now: Nanos) {
        self.reset_congestion_signals();
        // BBRPickProbeWait: 2 to 3 s, and a round more or less.
        let random = self.random.draw();
        self.rounds_since_probe = (random & 1) as u32;
        self.probe_wait = Nanos(2_000_000_000 + (random >> 32) % 1_000_000_000);
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::Stopping;
        self.start_round();
        self.phase = Phase::ProbeBwDown;
    }

    fn start_probe_bw_refill(&mut self) {
        self.reset_short_term_model();
        self.probe_up_rounds = 0;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.phase = Phase::ProbeBwRefill;
    }

    fn start_probe_bw_up(&mut self, rs: &Sample) {
        self.probe_samples = true;
        self.ack_phase = AckPhase::Starting;
        self.start_round();
        self.reset_full_bw();
        self.full_bw = rs.delivery_rate;
        self.phase = Phase::ProbeBwUp;
        self.raise_inflight_longterm_slope();
    }

    fn update_probe_bw_cycle_phase(&mut self, ack: &Ack, rs: &Sample) {
        if !self.full_bw_reached {
            return;
        }
        self.adapt_long_term_model(ack, rs);
        let phase = self.phase;
        match phase {
            Phase::ProbeBwDown if self.is_time_to_probe_bw(ack.now) => self.start_probe_bw_refill(),
            Phase::ProbeBwDown if self.is_time_to_cruise(ack) => self.phase = Phase::ProbeBwCruise,
            Phase::ProbeBwCruise if self.is_time_to_probe_bw(ack.now) => {
                self.start_probe_bw_refill();
            }
            Phase::ProbeBwRefill if self.round_start => self.start_probe_bw_up(rs),
            Phase::ProbeBwUp if self.is_time_to_go_down(rs) => self.start_probe_bw_down(ack.now),
            _ => {}
        }
    }

    fn is_time_to_probe_bw(&self, now: Nanos) -> bool {
        let segments = self.target_inflight() / self.mss;
        // As often as Reno would lose a segment, for coexistence.
        let reno = f64::from(self.rounds_since_probe) >= segments.min(63.0);
        now > self.cycle_stamp + self.probe_wait || reno
    }

    fn is_time_to_cruise(&self, ack: &Ack) -> bool {
        let inflight = f64::from(ack.inflight);
        inflight <= self.inflight_with_headroom() && inflight <= self.inflight_of(self.max_bw())
    }

    fn is_time_to_go_down(&mut self, rs: &Sample) -> bool {
        if self.is_limited_by_longterm() {
            // The bandwidth is limited by the bound, not by the path.
            self.reset_full_bw();
            self.full_bw = rs.delivery_rate;
            return false;
        }
        self.full_bw_now
    }

    /// Whether the window is fully used, and is `inflight_longterm`.
    fn is_limited_by_longterm(&self) -> bool {
        // The window is whole octets, less than one below the bound.
        self.delivered <= self.cwnd_limited && self.cwnd + 1.0 > self.inflight_longterm
    }

    fn raise_inflight_longterm_slope(&mut self) {
        self.probe_up_growth = self.mss * 2f64.powi(self.probe_up_rounds);
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
    }

    fn probe_inflight_longterm_upward(&mut self, rs: &Sample) {
        if !self.is_limited_by_longterm() {
            return;
        }
        self.inflight_longterm += rs.newly_acked * (self.probe_up_growth / self.cwnd).min(1.0);
        if self.round_start {
            self.raise_inflight_longterm_slope();
        }
    }

    fn adapt_long_term_model(&mut self, ack: &Ack, rs: &Sample) {
        if self.round_start {
            match self.ack_phase {
                AckPhase::Starting => self.ack_phase = AckPhase::Feedback,
                AckPhase::Stopping => {
                    // The samples of the probe end here. As in Linux once a cycle, where the draft
                    // would go on in each round.
                    self.probe_samples = false;
                    self.ack_phase = AckPhase::Init;
                    if self.phase.is_probe_bw() && !rs.app_limited {
                        self.advance_max_bw_filter();
                    }
                }
                _ => {}
            }
        }
        let lost = (self.lost - rs.lost_before) as f64;
        if is_inflight_too_high(lost, rs.tx_in_flight, ack.sack)
            || self.inflight_longterm.is_infinite()
        {
            return;
        }
        self.inflight_longterm = self.inflight_longterm.max(rs.tx_in_flight);
        if self.phase == Phase::ProbeBwUp {
            self.probe_inflight_longterm_upward(rs);
        }
    }

    // ProbeRTT.

    fn update_min_rtt(&mut self, ack: &Ack, rs: &Sample) {
        self.probe_rtt_expired = ack.now > self.probe_rtt_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rs.rtt
            && (self.probe_rtt_expired || self.probe_rtt_min.is_none_or(|least| rtt < least))
        {
            (self.probe_rtt_min, self.probe_rtt_stamp) = (Some(rtt), ack.now);
        }
        let expired = ack.now > self.min_rtt_stamp + MIN_RTT_FILTER;
        if let Some(rtt) = self.probe_rtt_min
            && (expired || self.min_rtt.is_none_or(|least| rtt < least))
        {
            (self.min_rtt, self.min_rtt_stamp) = (Some(rtt), self.probe_rtt_stamp);
        }
    }

    fn check_probe_rtt(&mut self, ack: &Ack) {
        if self.phase != Phase::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(ack.recovering);
            self.phase = Phase::ProbeRtt;
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::Stopping;
            self.start_round();
        }
        if self.phase == Phase::ProbeRtt {
            self.handle_probe_rtt(ack);
        }
        self.idle_restart = false;
    }

    fn handle_probe_rtt(&mut self, ack: &Ack) {
        // Low rates are on purpose now.
        self.limited_by_application(ack.inflight);
        if self.probe_rtt_done.is_none() {
            if f64::from(ack.inflight) <= self.probe_rtt_cwnd() {
                self.probe_rtt_done = Some(ack.now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.start_round();
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(ack.now);
        }
    }

    fn check_probe_rtt_done(&mut self, now: Nanos) {
        if self.probe_rtt_done.is_some_and(|done| now > done) {
            self.probe_rtt_stamp = now;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.exit_probe_rtt(now);
        }
    }

    fn exit_probe_rtt(&mut self, now: Nanos) {
        self.reset_short_term_model();
        if self.full_bw_reached {
            self.start_probe_bw_down(now);
            self.phase = Phase::ProbeBwCruise;
        } else {
            self.phase = Phase::Startup;
        }
    }

    // Control parameters.

    fn bdp(&self, bw: f64) -> f64 {
        self.min_rtt.map_or(self.initial_cwnd, |rtt| bw * rtt.as_secs_f64())
    }

    fn target_inflight(&self) -> f64 {
        self.bdp(self.bw).min(self.cwnd)
    }

    fn least_cwnd(&self) -> f64 {
        MIN_PIPE * self.mss
    }

    fn quantization_budget(&self, volume: f64) -> f64 {
        let volume = volume.max(3.0 * self.send_quantum).max(self.least_cwnd());
        if self.phase == Phase::ProbeBwUp { volume + 2.0 * self.mss } else { volume }
    }

    fn inflight(&self, gain: f64) -> f64 {
        self.quantization_budget(gain * self.bdp(self.bw))
    }

    fn inflight_of(&self, bw: f64) -> f64 {
        self.quantization_budget(self.bdp(bw))
    }

    fn inflight_with_headroom(&self) -> f64 {
        if self.inflight_longterm.is_infinite() {
            return f64::INFINITY;
        }
        let headroom = self.mss.max(HEADROOM * self.inflight_longterm);
        (self.inflight_longterm - headroom).max(self.least_cwnd())
    }

    /// BBRSetPacingRateWithGain.
    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = gain * self.bw * (1.0 - PACING_MARGIN);
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn set_send_quantum(&mut self) {
        let quantum = self.pacing_rate * QUANTUM.as_secs_f64();
        self.send_quantum = quantum.min(MAX_QUANTUM).max(2.0 * self.mss);
    }

    fn probe_rtt_cwnd(&self) -> f64 {
        (PROBE_RTT_CWND_GAIN * self.bdp(self.bw)).max(self.least_cwnd())
    }

    fn set_cwnd(&mut self, rs: &Sample) {
        let extra = self.extra_acked[0].max(self.extra_acked[1]);
        let volume = self.phase.cwnd_gain() * self.bdp(self.bw) + extra;
        let max_inflight = self.quantization_budget(volume);
        if self.full_bw_reached {
            self.cwnd = (self.cwnd + rs.newly_acked).min(max_inflight);
        } else if self.cwnd < max_inflight || (self.delivered as f64) < self.initial_cwnd {
            self.cwnd += rs.newly_acked;
        }
        self.cwnd = self.cwnd.max(self.least_cwnd());
        if self.phase == Phase::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
    }

    fn bound_cwnd_for_model(&mut self) {
        let cap = match self.phase {
            Phase::ProbeRtt | Phase::ProbeBwCruise => self.inflight_with_headroom(),
            phase if phase.is_probe_bw() => self.inflight_longterm,
            _ => f64::INFINITY,
        };
        let cap = cap.min(self.inflight_shortterm).max(self.least_cwnd());
        // 2^30: the largest window of RFC 7323.
        self.cwnd = self.cwnd.min(cap).min(f64::from(1 << 30));
    }
}

/// IsInflightTooHigh.
fn is_inflight_too_high(lost: f64, tx_in_flight: f64, sack: bool) -> bool {
    lost > tx_in_flight * LOSS_THRESH || lost > 0.0 && !sack
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    const RTT: Nanos = Nanos(10_000_000);

    /// A flow whose packets are acknowledged a round trip later.
    struct Flow {
        bbr: Bbr,
        board: Scoreboard,
        now: Nanos,
        una: u32,
        nxt: u32,
        cwnd: u32,
        recovering: bool,
    }

    impl Flow {
        fn new() -> Self {
            let now = Nanos(1_000_000_000);
            // Numbers wrap within each test.
            let isn = u32::MAX - 50_000;
            Self {
                bbr: Bbr::new(now, isn, 10 * MSS, 10_000, MSS),
                board: Scoreboard::default(),
                now,
                una: isn,
                nxt: isn,
                cwnd: 10 * MSS,
                recovering: false,
            }
        }

        fn send(&mut self, segments: u32) {
            for _ in 0..segments {
                let from = self.nxt;
                self.nxt = from.wrapping_add(MSS);
                let inflight = self.nxt.wrapping_sub(self.una);
                self.bbr.sent(self.now, self.now, (from, self.nxt), (inflight, self.cwnd), false);
            }
        }

        /// An acknowledgment after which `inflight` octets are outstanding.
        fn ack(&mut self, una: u32, lost_below: u32, inflight: u32) {
            self.una = una;
            self.board.acknowledge(una);
            let ack = Ack {
                now: self.now,
                una,
                nxt: self.nxt,
                lost_below,
                inflight,
                cwnd: self.cwnd,
                mss: MSS,
                sack: true,
                recovering: self.recovering,
            };
            self.cwnd = self.bbr.acknowledged(&ack, &self.board);
        }

        /// Sends that many segments, all of which are acknowledged a round trip later.
        fn round(&mut self, segments: u32) {
            self.send(segments);
            self.now = self.now + RTT;
            self.ack(self.nxt, self.una, 0);
        }

        /// As [`Flow::round`], but the first `lost` segments are, and all others are selectively
        /// acknowledged; `inflight` octets count as outstanding then.
        fn lossy_round(&mut self, segments: u32, lost: u32, inflight: u32) {
            self.send(segments);
            self.now = self.now + RTT;
            let edge = self.una.wrapping_add(lost * MSS);
            self.board.insert(edge, self.nxt);
            self.ack(self.una, edge, inflight);
        }

        /// In ProbeBW_CRUISE, with 40 segments in 10 ms.
        fn cruising() -> Self {
            let mut flow = Self::new();
            for segments in [10, 20, 40, 40, 40, 40] {
                flow.round(segments);
            }
            assert_eq!(flow.bbr.phase(), Phase::ProbeBwCruise);
            flow
        }

        /// In ProbeBW_UP.
        fn probing() -> Self {
            let mut flow = Self::cruising();
            flow.now = flow.now + Nanos(3_100_000_000);
            flow.round(40);
            assert_eq!(flow.bbr.phase(), Phase::ProbeBwRefill);
            flow.round(40);
            assert_eq!(flow.bbr.phase(), Phase::ProbeBwUp);
            flow
        }
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 0.01 * expected, "{value} {expected}");
    }

    #[test]
    fn drain_ends_three_rounds_later_even_with_a_queue() {
        let mut flow = Flow::new();
        [10, 20, 40, 40, 40].into_iter().for_each(|segments| flow.round(segments));
        for round in 0..5 {
            flow.send(40);
            flow.now = flow.now + RTT;
            flow.ack(flow.nxt, flow.una, 50 * MSS);
            let expected = if round < 4 { Phase::Drain } else { Phase::ProbeBwDown };
            assert_eq!(flow.bbr.phase(), expected, "{round}");
        }
    }

    #[test]
    fn startup_ends_after_three_rounds_without_growth_and_drain_when_the_queue_is_empty() {
        let mut flow = Flow::new();
        for segments in [10, 20, 40, 40, 40] {
            flow.round(segments);
            assert_eq!(flow.bbr.phase(), Phase::Startup);
        }
        flow.send(40);
        flow.now = flow.now + RTT;
        // 50 segments are in flight, and the path holds 40: 10 are in the queue.
        flow.ack(flow.nxt, flow.una, 50 * MSS);
        assert_eq!(flow.bbr.phase(), Phase::Drain);
        near(flow.bbr.pacing_rate(), 0.5 * 0.99 * 4e6);
        flow.send(10);
        flow.now = flow.now + RTT;
        flow.ack(flow.nxt, flow.una, 45 * MSS);
        assert_eq!(flow.bbr.phase(), Phase::Drain);
        flow.round(10);
        assert_eq!(flow.bbr.phase(), Phase::ProbeBwCruise, "through DOWN: nothing is in flight");
        near(flow.bbr.pacing_rate(), 0.99 * 4e6);
        near(flow.bbr.max_bw(), 4e6);
    }

    #[test]
    fn samples_limited_by_the_application_end_no_startup_and_lower_no_estimate() {
        let mut flow = Flow::new();
        [10, 20, 40].into_iter().for_each(|segments| flow.round(segments));
        for _ in 0..10 {
            flow.bbr.limited_by_application(0);
            flow.round(2);
            // The next packets after a round are free of it again.
            assert_eq!(flow.bbr.phase(), Phase::Startup);
            near(flow.bbr.max_bw(), 4e6);
        }
    }

    #[test]
    fn startup_ends_at_losses_in_six_acknowledgments_of_a_round() {
        for events in [5, 6] {
            let mut flow = Flow::new();
            [10, 20].into_iter().for_each(|segments| flow.round(segments));
            flow.recovering = true;
            // A round in which every second packet of some is lost, and one that ends it.
            flow.send(40);
            flow.now = flow.now + RTT;
            for event in 0..events {
                let lost = flow.una.wrapping_add((2 * event + 1) * MSS);
                flow.board.insert(lost, lost.wrapping_add(MSS));
                flow.ack(flow.una, lost, 40 * MSS);
                if event == 0 {
                    flow.send(1);
                }
            }
            flow.now = flow.now + RTT;
            flow.board.insert(flow.nxt.wrapping_sub(MSS), flow.nxt);
            flow.ack(flow.una, flow.una, 40 * MSS);
            let left = flow.bbr.phase() != Phase::Startup;
            assert_eq!(left, events == 6, "{events}");
            assert_eq!(flow.bbr.inflight_longterm.is_finite(), events == 6);
        }
    }

    #[test]
    fn a_probe_goes_on_while_the_bandwidth_grows_and_ends_when_it_does_not() {
        let mut flow = Flow::probing();
        assert!(flow.bbr.inflight_shortterm.is_infinite());
        near(flow.bbr.pacing_rate(), 1.25 * 0.99 * 4e6);
        for segments in [51, 65, 65, 65] {
            flow.round(segments);
            assert_eq!(flow.bbr.phase(), Phase::ProbeBwUp);
        }
        near(flow.bbr.max_bw(), 6.5e6);
        flow.send(65);
        flow.now = flow.now + RTT;
        flow.ack(flow.nxt, flow.una, 80 * MSS);
        assert_eq!(flow.bbr.phase(), Phase::ProbeBwDown);
        near(flow.bbr.pacing_rate(), 0.9 * 0.99 * 6.5e6);
    }

    #[test]
    fn losses_above_the_threshold_end_a_probe_and_bound_the_volume() {
        // One of 80 segments is less than 2 %.
        let mut flow = Flow::probing();
        flow.lossy_round(80, 1, 80 * MSS);
        assert_eq!(flow.bbr.phase(), Phase::ProbeBwUp);
        assert!(flow.bbr.inflight_longterm.is_infinite());
        let mut flow = Flow::probing();
        flow.lossy_round(40, 4, 40 * MSS);
        assert_eq!(flow.bbr.phase(), Phase::ProbeBwDown);
        // Where the losses crossed 2 %: (0.02 * 36,000 - 0) / 0.98 above 36,000.
        near(flow.bbr.inflight_longterm, 36_735.0);
        // A cruising flow leaves 15 % of that free.
        flow.ack(flow.nxt, flow.una, 0);
        flow.round(20);
        assert_eq!(flow.bbr.phase(), Phase::ProbeBwCruise);
        assert!(f64::from(flow.cwnd) <= 0.86 * 36_735.0, "{}", flow.cwnd);
    }

    #[test]
    fn a_probe_that_meets_the_bound_without_loss_raises_it() {
        let mut flow = Flow::probing();
        flow.bbr.inflight_longterm = f64::from(30 * MSS) + 0.5;
        let before = flow.bbr.inflight_longterm;
        for _ in 0..3 {
            flow.cwnd = 30 * MSS;
            flow.round(30);
        }
        let grown = flow.bbr.inflight_longterm - before;
        // 1, 2 and 4 segments in three rounds, as far as the window has followed.
        assert!((f64::from(MSS)..f64::from(8 * MSS)).contains(&grown), "{grown}");
    }

    #[test]
    fn losses_without_a_probe_lower_the_short_term_model_by_30_percent_at_most() {
        let mut flow = Flow::cruising();
        // The latest maximum is still that of the full rate when the first losses are noted.
        for segments in [40, 10] {
            flow.lossy_round(segments, 1, 0);
            flow.ack(flow.nxt, flow.una, 0);
            flow.round(10);
        }
        near(flow.bbr.bw_shortterm, 0.7 * 4e6);
        assert!(flow.bbr.inflight_shortterm.is_finite());
        near(flow.bbr.max_bw(), 4e6);
        assert!(flow.bbr.bw < 4e6);
        // The next probe forgets it.
        flow.now = flow.now + Nanos(3_100_000_000);
        flow.round(10);
        assert_eq!(flow.bbr.phase(), Phase::ProbeBwRefill);
        assert!(flow.bbr.bw_shortterm.is_infinite());
    }

    #[test]
    fn a_mark_counts_as_a_loss() {
        let mut flow = Flow::new();
        flow.round(10);
        flow.bbr.marked(flow.now, 10 * MSS);
        flow.round(10);
        assert_ne!(flow.bbr.phase(), Phase::Startup);
        let mut flow = Flow::probing();
        flow.bbr.marked(flow.now, 44 * MSS);
        assert_eq!(flow.bbr.phase(), Phase::ProbeBwDown);
        near(flow.bbr.inflight_longterm, 44_000.0);
    }

    #[test]
    fn a_stale_round_trip_time_is_measured_again_with_half_a_window() {
        let mut flow = Flow::cruising();
        let begun = flow.now;
        // Longer round trips than the minimum, so that it is not refreshed.
        while flow.bbr.phase() != Phase::ProbeRtt {
            flow.send(40);
            flow.now = flow.now + RTT + Nanos(1_000_000);
            flow.ack(flow.nxt, flow.una, 0);
            assert!(flow.now < begun + Nanos(6_000_000_000), "{:?}", flow.bbr.phase());
        }
        assert!(flow.now - begun > Nanos(4_800_000_000));
        let least = flow.bbr.min_rtt;
        // 40 segments in 11 ms, and a minimum of 10 ms.
        near(f64::from(flow.cwnd), 0.5 * 36_364.0);
        let probe = flow.now;
        while flow.bbr.phase() == Phase::ProbeRtt {
            flow.round(20);
        }
        assert_eq!(flow.bbr.min_rtt, least);
        let lasted = flow.now - probe;
        assert!((200..240).contains(&(lasted.0 / 1_000_000)), "{lasted}");
        assert_eq!(flow.bbr.phase(), Phase::ProbeBwCruise);
        assert!(f64::from(flow.cwnd) > 0.9 * 40_000.0, "the window is restored: {}", flow.cwnd);
    }

    #[test]
    fn a_time_out_keeps_the_window_for_later_and_loses_all_in_flight() {
        let mut flow = Flow::cruising();
        let (window, lost) = (flow.cwnd, flow.bbr.lost);
        flow.send(20);
        flow.bbr.enter_timeout(flow.cwnd, false);
        flow.cwnd = MSS;
        flow.now = flow.now + Nanos(300_000_000);
        let (una, nxt) = (flow.una, flow.nxt);
        // The first segment again, and its acknowledgment.
        let again = (una, una.wrapping_add(MSS));
        flow.bbr.sent(flow.now, flow.now, again, (MSS, MSS), true);
        flow.now = flow.now + RTT;
        flow.ack(una.wrapping_add(MSS), nxt, 0);
        assert_eq!(flow.bbr.lost - lost, 19_000, "all but what was sent again");
        assert!(flow.cwnd >= 4 * MSS);
        assert_eq!(flow.bbr.restore_cwnd(flow.cwnd), window);
    }

    #[test]
    fn entries_of_what_is_in_flight_are_split_and_bounded() {
        let mut flow = Flow::new();
        flow.send(10);
        assert_eq!(flow.bbr.sent.len(), 1, "a burst");
        let at = |segments: u32| flow.una.wrapping_add(segments * MSS);
        flow.bbr.sent(flow.now, flow.now, (at(3), at(5)), (10_000, 10_000), true);
        let all: Vec<_> = flow.bbr.sent.iter().map(|s| (s.from, s.end, s.again)).collect();
        let expected = [(at(0), at(3), false), (at(3), at(5), true), (at(5), at(10), false)];
        assert_eq!(all, expected);
        for n in 0..3 * MAX_SENT as u32 {
            flow.now = flow.now + Nanos(1000);
            let octet = (at(10).wrapping_add(n), at(10).wrapping_add(n + 1));
            flow.bbr.sent(flow.now, flow.now, octet, (10_000, 10_000), false);
        }
        assert!(flow.bbr.sent.len() <= MAX_SENT);
        assert_eq!(
            flow.bbr.sent.back().map(|s| s.end),
            Some(at(10).wrapping_add(3 * MAX_SENT as u32))
        );
        for n in (0..3 * MAX_SENT as u32).step_by(2) {
            let octet = (at(10).wrapping_add(n), at(10).wrapping_add(n + 1));
            flow.bbr.sent(flow.now, flow.now, octet, (10_000, 10_000), true);
        }
        assert!(flow.bbr.sent.len() <= MAX_SENT + 2, "{}", flow.bbr.sent.len());
    }

    #[test]
    fn packets_leave_at_the_pace_and_a_late_flow_makes_up_for_a_millisecond() {
        let mut flow = Flow::cruising();
        let rate = flow.bbr.pacing_rate();
        flow.now = flow.now + Nanos(50_000_000);
        let start = flow.now;
        let mut sent = 0;
        while flow.now < start + Nanos(20_000_000) {
            // A timer of 100 us.
            while flow.bbr.paced_until(flow.now).is_none() {
                flow.send(1);
                sent += 1;
            }
            assert!(flow.bbr.waiting().is_some());
            flow.now = flow.now + Nanos(100_000);
        }
        let octets = f64::from(sent * MSS);
        let expected = rate * 0.021;
        assert!((octets - expected).abs() <= f64::from(2 * MSS), "{octets} {expected}");
    }
}
