//! The record of a flow. There may be millions, so its size determines the stack's memory.

use crate::{addresses::Packed, pieces::NO_PIECE};

/// 76 octets plus the application's state.
///
/// The fields that segments need come first, in 64 octets; the rest is for timers and the
/// application.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Flow<S> {
    /// IPv4 addresses, or IPv6 addresses without their upper bits ([`Flow::packed`]). In a free
    /// record, `local` is the next free one.
    pub local: u32,
    pub remote: u32,
    pub local_port: u16,
    pub remote_port: u16,
    pub class: u16,
    /// The longest payload, including options, of a segment to the peer.
    pub mss: u16,
    pub bits: Bits,
    /// SND.UNA.
    pub snd_una: u32,
    /// SND.NXT: the number after the highest one that was sent. A SYN counts as sent from the
    /// start, and is marked [`Bits::HEAD`] until it is.
    pub snd_nxt: u32,
    /// SND.WND, octets.
    pub snd_wnd: u32,
    /// RCV.NXT.
    pub rcv_nxt: u32,
    /// RCV.NXT + RCV.WND as advertised to the peer.
    pub rcv_adv: u32,
    pub cwnd: u32,
    /// With timestamps: TS.Recent. Without: the sequence number whose acknowledgment provides the
    /// round-trip time. Never both, so they share a field.
    pub ts_recent: u32,
    /// When that segment was sent, in steps of the timestamp clock.
    pub rtt_sent: u16,
    /// When a delayed acknowledgment is due: lower half of the tick, enough for 4.3 s; a delay is
    /// at most 500 ms.
    pub ack_at: u16,
    pub srtt: Duration,
    pub rttvar: Duration,
    /// Tick of the one running timer: retransmission, persist, keepalive, TIME-WAIT, FIN-WAIT-2 or
    /// idle. Only one runs at a time, because each belongs to a different state of the flow.
    pub rtx_at: u32,
    /// Row of its oldest piece that is not fully acknowledged ([`crate::pieces::Pieces`]), or
    /// [`EXTRA`] and the index of its [`crate::extra::Extra`], which then has that row.
    pub aside: u32,
    /// Tick at which the application is woken.
    pub app_at: u32,
    /// Its [`crate::FlowId`]. It stays while the flow is [at rest](crate::rest) in between.
    pub number: u32,
    /// For IPv6: the number of the addresses' upper bits.
    pub upper: u16,
    /// The sum of its addresses and the number of TCP ([`crate::packet::Addresses::pseudo`]), folded,
    /// once it has sent a segment; 0: not computed yet.
    pub sum: u16,
    pub state: S,
}

/// Flag of [`Flow::aside`].
pub(crate) const EXTRA: u32 = 1 << 31;

/// States of RFC 9293 §3.3.2. No flow is in LISTEN: the application listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    Closed,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    /// Not TCP.
    Udp,
}

const STATES: [State; 16] = {
    use State::*;
    [
        Closed,
        SynSent,
        SynReceived,
        Established,
        FinWait1,
        FinWait2,
        CloseWait,
        Closing,
        LastAck,
        TimeWait,
        Udp,
        Closed,
        Closed,
        Closed,
        Closed,
        Closed,
    ]
};

/// Flags, state and small numbers of a flow in one word: one load suffices for the decisions of the
/// fast paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bits(pub u32);

impl Bits {
    /// In [`crate::core::Core::queue`].
    pub const QUEUED: u32 = 1 << 0;
    /// An acknowledgment must be sent now.
    pub const ACK_NOW: u32 = 1 << 1;
    /// An acknowledgment must be sent at `ack_at`.
    pub const ACK_LATER: u32 = 1 << 2;
    /// `rtx_at` is valid.
    pub const RTX: u32 = 1 << 3;
    /// `app_at` is valid.
    pub const APP: u32 = 1 << 4;
    /// The application has closed.
    pub const CLOSE: u32 = 1 << 5;
    /// Timestamps are agreed; while connecting: offered.
    pub const TIMESTAMPS: u32 = 1 << 6;
    pub const SACK: u32 = 1 << 7;
    pub const ECN: u32 = 1 << 8;
    /// Outgoing segments carry ECE, until the peer's CWR (RFC 3168 §6.1.3).
    pub const ECE: u32 = 1 << 9;
    /// The next new data carries CWR (RFC 3168 §6.1.2).
    pub const CWR: u32 = 1 << 10;
    pub const V6: u32 = 1 << 11;
    /// The peer opened the flow.
    pub const PASSIVE: u32 = 1 << 12;
    /// `ts_recent` and `rtt_sent` time a segment (without timestamps).
    pub const TIMING: u32 = 1 << 13;
    /// The timer at `rtx_at` is the persist timer.
    pub const PERSIST: u32 = 1 << 14;
    /// The segment at SND.UNA must be sent (again).
    pub const HEAD: u32 = 1 << 15;
    /// A window or keepalive probe must be sent.
    pub const PROBE: u32 = 1 << 16;
    /// The application has aborted, or has got its last event.
    pub const ABORT: u32 = 1 << 17;

    /// Conditions that the fast paths leave to the slow ones, in addition to the state and an
    /// `Extra` ([`Flow::has_extra`]).
    pub const SLOW_PATH: u32 = Self::PERSIST | Self::HEAD | Self::PROBE | Self::ECN;

    const STATE_AT: u32 = 18;
    const WSCALE_AT: u32 = 22;
    const RETRIES_AT: u32 = 26;
    const DUPACKS_AT: u32 = 30;

    #[inline]
    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    #[inline]
    pub fn set(&mut self, flag: u32) {
        self.0 |= flag;
    }

    #[inline]
    pub fn clear(&mut self, flag: u32) {
        self.0 &= !flag;
    }

    #[inline]
    pub fn state(self) -> State {
        STATES[(self.0 >> Self::STATE_AT) as usize & 15]
    }

    #[inline]
    pub fn is_udp(self) -> bool {
        self.0 >> Self::STATE_AT & 15 == State::Udp as u32
    }

    /// Whether an acknowledgment is owed and no pending segment will carry it.
    #[inline]
    pub fn delays_ack(self) -> bool {
        self.0 & (Self::ACK_LATER | Self::QUEUED) == Self::ACK_LATER
    }

    /// Resets the counts of consecutive time-outs and duplicate acknowledgments.
    #[inline]
    pub fn reset_streaks(&mut self) {
        self.0 &= !(15 << Self::RETRIES_AT | 3 << Self::DUPACKS_AT);
    }

    #[inline(always)]
    pub fn set_state(&mut self, state: State) {
        self.write(Self::STATE_AT, 15, state as u32);
    }

    /// Shift of the peer's windows; `None`: no scaling in either direction, because both sides must
    /// offer it (RFC 7323 §2.2).
    #[inline]
    pub fn wscale(self) -> Option<u32> {
        let shift = self.0 >> Self::WSCALE_AT & 15;
        (shift < 15).then_some(shift)
    }

    /// `shift` is at most 14 (RFC 7323 §2.3), so 15 can mean "none".
    #[inline(always)]
    pub fn set_wscale(&mut self, shift: Option<u8>) {
        self.write(Self::WSCALE_AT, 15, shift.map_or(15, u32::from));
    }

    /// Consecutive time-outs, at most 15.
    #[inline]
    pub fn retries(self) -> u8 {
        (self.0 >> Self::RETRIES_AT & 15) as u8
    }

    #[inline(always)]
    pub fn set_retries(&mut self, n: u8) {
        self.write(Self::RETRIES_AT, 15, u32::from(n.min(15)));
    }

    /// Consecutive duplicate acknowledgments, at most 3, the threshold. While the persist timer
    /// runs: unanswered probes.
    #[inline]
    pub fn dupacks(self) -> u8 {
        (self.0 >> Self::DUPACKS_AT) as u8
    }

    pub fn set_dupacks(&mut self, n: u8) {
        self.write(Self::DUPACKS_AT, 3, u32::from(n.min(3)));
    }

    #[inline(always)]
    fn write(&mut self, at: u32, mask: u32, value: u32) {
        self.0 = self.0 & !(mask << at) | value << at;
    }
}

/// Microseconds in 15 bits, 11 of mantissa and 4 of exponent: precise to 0.1 %, at most 67 s. Bit
/// 15 is free for a mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Duration(u16);

impl Duration {
    const MARK: u16 = 1 << 15;

    #[inline]
    pub fn from_micros(us: u32) -> Self {
        let us = us.min(0x7ff << 15);
        let exponent = (32 - us.leading_zeros()).saturating_sub(11);
        Self((exponent << 11 | us >> exponent) as u16)
    }

    #[inline]
    pub fn micros(self) -> u32 {
        u32::from(self.0 & 0x7ff) << (self.0 >> 11 & 15)
    }

    /// The bits, in the order of the durations. A marked one comes after all others.
    #[inline]
    pub fn bits(self) -> u16 {
        self.0
    }
}

impl<S: Default> Flow<S> {
    pub fn new() -> Self {
        Self {
            local: 0,
            remote: 0,
            local_port: 0,
            remote_port: 0,
            class: 0,
            mss: 0,
            bits: Bits::default(),
            snd_una: 0,
            snd_nxt: 0,
            snd_wnd: 0,
            rcv_nxt: 0,
            rcv_adv: 0,
            cwnd: 0,
            ts_recent: 0,
            rtt_sent: 0,
            ack_at: 0,
            srtt: Duration::default(),
            rttvar: Duration::default(),
            rtx_at: 0,
            aside: NO_PIECE,
            app_at: 0,
            number: 0,
            upper: 0,
            sum: 0,
            state: S::default(),
        }
    }
}

impl<S> Flow<S> {
    #[inline]
    pub fn tcp_state(&self) -> State {
        self.bits.state()
    }

    /// Doublings of the retransmission time-out that persist until the next round-trip time sample
    /// (Karn's algorithm; RFC 6298 §5). Two bits, in the marks of SRTT and RTTVAR: a sample
    /// overwrites both, which ends the backoff.
    #[inline]
    pub fn kept_backoff(&self) -> u8 {
        (self.srtt.0 >> 15 << 1 | self.rttvar.0 >> 15) as u8
    }

    pub fn keep_backoff(&mut self, doublings: u8) {
        let n = u16::from(doublings.min(3));
        self.srtt.0 = self.srtt.0 & !Duration::MARK | (n >> 1) << 15;
        self.rttvar.0 = self.rttvar.0 & !Duration::MARK | (n & 1) << 15;
    }

    /// The IPv6 addresses.
    #[inline]
    pub fn packed(&self) -> Packed {
        Packed { local: self.local, remote: self.remote, upper: self.upper }
    }

    /// Whether it has an [`crate::extra::Extra`].
    #[inline]
    pub fn has_extra(&self) -> bool {
        self.aside & EXTRA != 0
    }

    /// The index of its [`crate::extra::Extra`].
    #[inline]
    pub fn extra_place(&self) -> usize {
        (self.aside & !EXTRA) as usize
    }

    /// The tick of the delayed acknowledgment, from its lower half; `now`: the current tick.
    #[inline]
    pub fn ack_due(&self, now: u32) -> u32 {
        now.wrapping_add(i32::from(self.ack_at.wrapping_sub(now as u16) as i16) as u32)
    }

    /// Octets (and SYN, FIN) that are sent and not acknowledged.
    #[inline]
    pub fn flight(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.snd_una)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_76_octets_and_the_state() {
        assert_eq!(size_of::<Flow<[u32; 6]>>(), 76 + 24);
        assert_eq!(size_of::<Flow<[u32; 8]>>(), 76 + 32);
    }

    #[test]
    fn fields_of_the_word_do_not_touch_each_other() {
        let mut bits = Bits(0x3ffff);
        bits.set_state(State::TimeWait);
        bits.set_wscale(Some(14));
        bits.set_retries(9);
        bits.set_dupacks(2);
        assert_eq!(
            (bits.state(), bits.wscale(), bits.retries(), bits.dupacks()),
            (State::TimeWait, Some(14), 9, 2)
        );
        assert_eq!(bits.0 & 0x3ffff, 0x3ffff);
        bits.set_wscale(None);
        bits.set_state(State::Udp);
        bits.set_dupacks(9);
        assert_eq!(
            (bits.state(), bits.wscale(), bits.retries(), bits.dupacks()),
            (State::Udp, None, 9, 3)
        );
    }

    #[test]
    fn a_backoff_is_kept_until_the_next_sample() {
        let mut flow = Flow::<u32>::new();
        (flow.srtt, flow.rttvar) = (Duration::from_micros(1_000_000), Duration::from_micros(3));
        for n in [1, 2, 3, 9, 0] {
            flow.keep_backoff(n);
            assert_eq!(flow.kept_backoff(), n.min(3));
            assert_eq!((flow.srtt.micros(), flow.rttvar.micros()), (999_936, 3));
        }
    }

    #[test]
    fn durations_round_trip_approximately() {
        for us in [0, 1, 2047, 2048, 5000, 1_000_000, 60_000_000] {
            let back = Duration::from_micros(us).micros();
            assert!(back <= us && us - back <= us / 1024, "{us} {back}");
        }
    }
}
