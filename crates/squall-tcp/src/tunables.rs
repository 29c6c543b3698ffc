//! What can be set: for the whole stack, and for each class of flows.

use squall_units::Nanos;

use crate::packet::{IPV4, IPV6};

/// How the flows of a class behave; TRex's ASTF names in brackets.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    /// Octets of a segment's payload and options over IPv4 (tcp.mss), 42..=65,495; over IPv6 20
    /// less, for its longer header, and at least 42. What the peer's MSS allows if that is less. A datagram may have
    /// 12 octets more.
    pub mss: u16,
    /// Segments are no longer than the peer's MSS (RFC 9293 §3.7.1); `false`: than our own.
    pub peer_mss: bool,
    /// Initial congestion window, segments (tcp.initwnd; RFC 6928). 1..=1000
    pub initwnd: u16,
    /// Segments by which an acknowledgment makes the congestion window grow at most in slow start
    /// (L of RFC 3465), which it then does as long as the peer's window is no smaller, as BSD's; 0:
    /// as many as it acknowledges, if half of the window was used.
    pub abc_limit: u16,
    /// Octets that are sent and not acknowledged, at most; the last of them has PSH
    /// (tcp.txbufsize). 0: no such bound.
    pub send_buffer: u32,
    /// Receive window, octets (tcp.rxbufsize). At most 65,535 << `wscale`.
    pub window: u32,
    /// Window scale that is offered (RFC 7323; tcp.do_rfc1323), 0..=14; `None`: the option is not
    /// sent.
    pub wscale: Option<u8>,
    /// Octets that may wait out of order, per flow; at most `window`.
    pub reassembly: u32,
    /// Offer and use selective acknowledgements (RFC 2018, 6675).
    pub sack: bool,
    /// Offer and use timestamps (RFC 7323; tcp.do_rfc1323).
    pub timestamps: bool,
    /// In which order a SYN has its options.
    pub option_order: OptionOrder,
    /// Send short segments at once: Nagle's algorithm is off (tcp.no_delay).
    pub no_delay: bool,
    /// How long an acknowledgement may wait for company (tcp.delay_ack_msec); 0: not at all. At
    /// most 500 ms.
    pub delayed_ack: Nanos,
    /// Octets received that are acknowledged at once (tcp.no_delay_counter); 0: two segments (RFC
    /// 9293 §3.8.6.3).
    pub ack_octets: u32,
    /// A segment with PSH is acknowledged at once.
    pub ack_push: bool,
    /// Until there is a round-trip time (RFC 6298 §2.1).
    pub rto_initial: Nanos,
    pub rto_min: Nanos,
    pub rto_max: Nanos,
    /// A SYN is sent so many times more. At most 14.
    pub syn_retries: u8,
    /// Anything else is sent so many times more. At most 14.
    pub retries: u8,
    /// Idle time before keepalive probes; 0: none (tcp.keepidle).
    pub keepidle: Nanos,
    /// Between probes (tcp.keepintvl).
    pub keepintvl: Nanos,
    /// Probes without answer before the flow is given up (tcp.keepcnt). At most 14.
    pub keepcnt: u8,
    /// In TIME-WAIT (2 MSL; RFC 9293 §3.4.2 wants 4 min): 0..=1 h. 0: none.
    pub time_wait: Nanos,
    /// How long a peer may leave us in FIN-WAIT-2 in silence; 0: for ever. At most 1 h.
    pub fin_wait: Nanos,
    pub congestion: Congestion,
    /// Offer explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// IPv4's type of service, IPv6's traffic class (ip.tos). The lower two bits are ECN's where
    /// that is used.
    pub tos: u8,
    /// Time to live, hop limit (ip.ttl).
    pub ttl: u8,
    /// UDP flows end after so long a silence of both sides; 0: never (TRex's keep-alive). At most 1
    /// h.
    pub udp_idle: Nanos,
}

/// The order of a SYN's options, by which systems are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionOrder {
    /// MSS, SACK, timestamps, window scale.
    Linux,
    /// MSS, window scale, SACK, timestamps; filled up at the end: BSD's, macOS's and TRex's.
    Bsd,
}

/// How the congestion window grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681, 6582.
    NewReno,
    /// RFC 9438.
    Cubic,
}

const MS: u64 = 1_000_000;

impl Default for Tunables {
    fn default() -> Self {
        Self {
            mss: 1460,
            peer_mss: true,
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
            delayed_ack: Nanos(40 * MS),
            ack_octets: 0,
            ack_push: false,
            rto_initial: Nanos::SECOND,
            rto_min: Nanos(200 * MS),
            rto_max: Nanos(60_000 * MS),
            syn_retries: 5,
            retries: 8,
            keepidle: Nanos::ZERO,
            keepintvl: Nanos(75_000 * MS),
            keepcnt: 9,
            time_wait: Nanos::SECOND,
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

/// All options of a segment and two octets of data.
const LEAST_OWN_MSS: u16 = 42;

impl Tunables {
    /// Over IPv6, whose header is longer.
    pub(crate) fn mss6(&self) -> u16 {
        self.mss.saturating_sub((IPV6 - IPV4) as u16).max(LEAST_OWN_MSS)
    }

    /// Whether all are in their ranges; the first that is not.
    pub fn check(&self) -> Result<(), TunableError> {
        let hour = Nanos(3_600_000 * MS);
        let window_max = u32::from(u16::MAX) << self.wscale.unwrap_or(0).min(14);
        let ms = |t: Nanos| t.0 / MS;
        for (name, value, expected, good) in [
            (
                "mss",
                self.mss.into(),
                "42 to 65,495 octets",
                (LEAST_OWN_MSS..=65_495).contains(&self.mss),
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
                "1 ms to 1 h",
                (Nanos(MS)..=hour).contains(&self.keepintvl),
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

/// What holds for a stack as a whole.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Flows at once, at most 2^30. Their table is allocated at once, their records as they come.
    pub flows: u32,
    /// Secret of the flow table's hash and of initial sequence numbers (RFC 6528). Same key, same
    /// time: same octets.
    pub key: [u64; 2],
    /// Check the checksums of what is received.
    pub verify: bool,
    /// The longest IP packet that the output takes together with how it is to be cut; at most
    /// 65,535. 0: it takes none.
    pub gso_max_size: u16,
    /// Octets that may wait out of order, of all flows together.
    pub reassembly: u64,
    /// Challenge ACKs a second (RFC 5961 §7), and as many answers to segments out of window.
    pub challenges: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flows: 1 << 20,
            key: [0x5155_414c_4c21_0001, 0x243f_6a88_85a3_08d3],
            verify: true,
            gso_max_size: 0,
            reassembly: 256 << 20,
            challenges: 1000,
        }
    }
}
