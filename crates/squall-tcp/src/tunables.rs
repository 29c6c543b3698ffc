//! Settings of the whole stack, and of each class of flows.

use squall_units::Nanos;

use crate::packet::{IPV4, IPV6};

/// Behavior of the flows of a class. TRex's ASTF names are in parentheses.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    /// Octets of a segment's payload and options over IPv4 (tcp.mss), 42..=65,495. Over IPv6, 20
    /// octets less, because the header is longer, but at least 42. A smaller MSS announced by the
    /// peer limits it. A datagram may have 12 octets more.
    pub mss: u16,
    /// Whether the peer's MSS limits segments (RFC 9293 §3.7.1). If not, only this side's MSS does.
    pub peer_mss: bool,
    /// Initial congestion window, segments (tcp.initwnd; RFC 6928). 1..=1000
    pub initwnd: u16,
    /// Maximum number of segments by which one acknowledgment increases the congestion window in
    /// slow start (L of RFC 3465). The window then grows up to the peer's window, as in BSD. 0: the
    /// window grows by the acknowledged octets if at least half of it was used.
    pub abc_limit: u16,
    /// Maximum number of octets sent and not acknowledged; the last of them has PSH
    /// (tcp.txbufsize). 0: no limit.
    pub send_buffer: u32,
    /// Receive window, octets (tcp.rxbufsize). At most 65,535 << `wscale`.
    pub window: u32,
    /// Offered window scale (RFC 7323; tcp.do_rfc1323), 0..=14; `None`: the option is not sent.
    pub wscale: Option<u8>,
    /// Maximum number of out-of-order octets buffered per flow; at most `window`.
    pub reassembly: u32,
    /// Offer and use selective acknowledgments (RFC 2018, 6675).
    pub sack: bool,
    /// Offer and use timestamps (RFC 7323; tcp.do_rfc1323).
    pub timestamps: bool,
    /// Order of a SYN's options.
    pub option_order: OptionOrder,
    /// Send short segments at once: Nagle's algorithm is off (tcp.no_delay).
    pub no_delay: bool,
    /// How long an acknowledgment may be delayed (tcp.delay_ack_msec); 0: not at all. At most 500
    /// ms (RFC 9293 §3.8.6.3).
    pub delayed_ack: Nanos,
    /// Received octets that are acknowledged at once (tcp.no_delay_counter); 0: two segments (RFC
    /// 9293 §3.8.6.3).
    pub ack_octets: u32,
    /// Acknowledge segments with PSH at once.
    pub ack_push: bool,
    /// Sets PSH in each segment with data, which then leaves as a separate packet. If not set, PSH
    /// is in the last segment of queued data.
    pub push_all: bool,
    /// Retransmission time-out before the first round-trip time sample (RFC 6298 §2.1).
    pub rto_initial: Nanos,
    pub rto_min: Nanos,
    pub rto_max: Nanos,
    /// Retransmissions of a SYN, at most 14.
    pub syn_retries: u8,
    /// Retransmissions of anything else, at most 14.
    pub retries: u8,
    /// Idle time before keepalive probes; 0: none (tcp.keepidle).
    pub keepidle: Nanos,
    /// Interval of probes (tcp.keepintvl).
    pub keepintvl: Nanos,
    /// Unanswered probes before the flow is ended (tcp.keepcnt). At most 14.
    pub keepcnt: u8,
    /// Duration of TIME-WAIT (2 MSL, 4 min in RFC 9293 §3.4.2): 0..=1 h. 0: none.
    pub time_wait: Nanos,
    /// Silence of the peer that FIN-WAIT-2 allows; 0: unlimited. At most 1 h.
    pub fin_wait: Nanos,
    pub congestion: Congestion,
    /// Offer explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// IPv4's type of service or IPv6's traffic class (ip.tos). ECN, if used, sets the two lower
    /// bits.
    pub tos: u8,
    /// Time to live or hop limit (ip.ttl).
    pub ttl: u8,
    /// Silence in both directions after which a UDP flow ends; 0: never (TRex's keep-alive). At
    /// most 1 h.
    pub udp_idle: Nanos,
}

/// Order of a SYN's options, by which fingerprinting identifies systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionOrder {
    /// MSS, SACK, timestamps, window scale.
    Linux,
    /// MSS, window scale, SACK, timestamps; padded at the end: BSD, macOS and TRex.
    Bsd,
}

/// How the congestion window grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681, 6582.
    NewReno,
    /// RFC 9438.
    Cubic,
    /// Version 3 (draft-ietf-ccwg-bbr-05); paced.
    Bbr,
}

const MS: u64 = 1_000_000;

impl Default for Tunables {
    fn default() -> Self {
        Self {
            // An Ethernet MTU of 1500 less 40 octets of headers.
            mss: 1460,
            peer_mss: true,
            // RFC 6928.
            initwnd: 10,
            abc_limit: 0,
            send_buffer: 0,
            window: 256 << 10,
            wscale: Some(7),
            reassembly: 256 << 10,
            sack: true,
            timestamps: true,
            option_order: OptionOrder::Linux,
            no_delay: true,
            // Linux's TCP_DELACK_MIN.
            delayed_ack: Nanos(40 * MS),
            ack_octets: 0,
            ack_push: false,
            push_all: false,
            // RFC 6298 §2.1.
            rto_initial: Nanos::SECOND,
            // Linux's TCP_RTO_MIN: the 1 s of RFC 6298 §2.4 would idle a fast network after each
            // lost tail.
            rto_min: Nanos(200 * MS),
            // RFC 6298 §2.5 allows no less.
            rto_max: Nanos(60_000 * MS),
            syn_retries: 5,
            // RFC 9293 §3.8.3 wants at least 100 s before a connection ends; with Linux's minimum
            // RTO that takes 8 retransmissions (Linux, tcp_retries2).
            retries: 8,
            keepidle: Nanos::ZERO,
            // Interval and number as in Linux (tcp_keepalive_intvl, tcp_keepalive_probes).
            keepintvl: Nanos(75_000 * MS),
            keepcnt: 9,
            // Far less than 2 MSL: at 500,000 connections per second, 4 min would occupy 120
            // million ports.
            time_wait: Nanos::SECOND,
            // Linux's tcp_fin_timeout.
            fin_wait: Nanos(60_000 * MS),
            congestion: Congestion::Cubic,
            ecn: false,
            tos: 0,
            ttl: 64,
            udp_idle: Nanos(10_000 * MS),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value}: expected {expected}")]
pub struct TunableError {
    pub name: &'static str,
    pub value: u64,
    pub expected: &'static str,
}

/// Room for 40 octets of options and two of data.
const MIN_OWN_MSS: u16 = 42;

impl Tunables {
    /// MSS over IPv6, whose header is longer.
    #[inline]
    pub(crate) fn mss6(&self) -> u16 {
        self.mss.saturating_sub((IPV6 - IPV4) as u16).max(MIN_OWN_MSS)
    }

    /// Checks all ranges. Returns the first violation.
    pub fn check(&self) -> Result<(), TunableError> {
        let hour = Nanos(3_600_000 * MS);
        let window_max = u32::from(u16::MAX) << self.wscale.unwrap_or(0).min(14);
        let ms = |t: Nanos| t.0 / MS;
        for (name, value, expected, good) in [
            (
                "mss",
                self.mss.into(),
                "42 to 65,495 octets",
                (MIN_OWN_MSS..=65_495).contains(&self.mss),
            ),
            (
                "initwnd",
                self.initwnd.into(),
                "1 to 1000 segments",
                (1..=1000).contains(&self.initwnd),
            ),
            (
                "wscale",
                self.wscale.unwrap_or(0).into(),
                "0 to 14",
                self.wscale.is_none_or(|s| s <= 14),
            ),
            (
                "window",
                self.window.into(),
                "1 to 65,535 << wscale octets",
                (1..=window_max).contains(&self.window),
            ),
            (
                "reassembly",
                self.reassembly.into(),
                "at most window",
                self.reassembly <= self.window,
            ),
            (
                "delayed_ack",
                ms(self.delayed_ack),
                "at most 500 ms",
                self.delayed_ack <= Nanos(500 * MS),
            ),
            (
                "rto_min",
                ms(self.rto_min),
                "1 ms to rto_max",
                (Nanos(MS)..=self.rto_max).contains(&self.rto_min),
            ),
            (
                "rto_initial",
                ms(self.rto_initial),
                "rto_min to rto_max",
                (self.rto_min..=self.rto_max).contains(&self.rto_initial),
            ),
            ("rto_max", ms(self.rto_max), "at most 1 h", self.rto_max <= hour),
            ("syn_retries", self.syn_retries.into(), "at most 14", self.syn_retries <= 14),
            ("retries", self.retries.into(), "at most 14", self.retries <= 14),
            ("keepcnt", self.keepcnt.into(), "at most 14", self.keepcnt <= 14),
            ("keepidle", ms(self.keepidle), "at most 24 h", self.keepidle <= Nanos(24 * hour.0)),
            (
                "keepintvl",
                ms(self.keepintvl),
                "1 ms to 24 h",
                (Nanos(MS)..=Nanos(24 * hour.0)).contains(&self.keepintvl),
            ),
            ("time_wait", ms(self.time_wait), "at most 1 h", self.time_wait <= hour),
            ("fin_wait", ms(self.fin_wait), "at most 1 h", self.fin_wait <= hour),
            ("udp_idle", ms(self.udp_idle), "at most 1 h", self.udp_idle <= hour),
            ("ttl", self.ttl.into(), "at least 1", self.ttl > 0),
        ] {
            if !good {
                return Err(TunableError { name, value, expected });
            }
        }
        Ok(())
    }
}

/// Settings of a stack as a whole.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Flows at once, at most 2^30. Records are allocated on demand.
    pub flows: u32,
    /// Records up to which flows that wait keep theirs. Beyond, a flow that has waited for 17 ms with
    /// nothing to send gives its record to another one, and takes half as much memory.
    pub records: u32,
    /// Secret of the flow table's hash and of initial sequence numbers (RFC 6528). The same key and
    /// the same times give the same octets, so that runs can be repeated.
    pub key: [u64; 2],
    /// Verify the checksums of received packets.
    pub verify: bool,
    /// Longest IP packet that the output accepts for segmentation (GSO), at most 65,535; 0: no GSO.
    pub gso_max_size: u16,
    /// Maximum number of out-of-order octets buffered, over all flows.
    pub reassembly: u64,
    /// Challenge ACKs per second (RFC 5961 §7); also the limit on answers to segments outside of
    /// the window.
    pub challenges: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flows: 1 << 20,
            // 6.5 MB: fewer fit the caches, and rest would only cost time.
            records: 1 << 16,
            key: [0x5155_414c_4c21_0001, 0x243f_6a88_85a3_08d3],
            verify: true,
            gso_max_size: 0,
            reassembly: 256 << 20,
            // A former default of Linux (tcp_challenge_ack_limit); RFC 5961 §7 leaves the number to
            // the administrator.
            challenges: 1000,
        }
    }
}
