//! Flow counters under TRex's names, computed from the counters in a report.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde_json::{Map, Value, json};
use squall::report::flows::{FlowsReport, RoleReport};

/// The source of a counter's value.
enum From {
    /// The sum of these counters over TCP flows.
    Tcp(&'static [&'static str]),
    /// The sum of these counters over UDP flows.
    Udp(&'static [&'static str]),
    /// The number of arrivals that did not begin for this reason.
    NotStarted(&'static str),
    /// A current figure, or one for the last second.
    Now(fn(&Rates) -> f64),
}

pub struct Counter {
    pub name: &'static str,
    help: &'static str,
    units: &'static str,
    /// Whether to show the counter even if it is 0.
    zero: bool,
    error: bool,
    from: From,
}

/// Figures of one side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    active: f64,
    established: f64,
    /// Seconds from the start to the last packet.
    lasted: f64,
    tx_bps: f64,
    rx_bps: f64,
    tx_pps: f64,
    rx_pps: f64,
    /// New flows per second.
    cps: f64,
}

const ENDED: &[&str] = &[
    "closed",
    "aborted",
    "reset",
    "refused",
    "unreachable",
    "connect_timeout",
    "timeout",
    "keepalive_timeout",
    "idle",
];
/// The reasons in [`ENDED`] for which flows end after their connection was established.
const ENDED_LATER: &[&str] =
    &["closed", "aborted", "reset", "timeout", "keepalive_timeout", "idle"];
const RESENT: &[&str] = &["retransmit_rto", "retransmit_fast", "retransmit_sack", "retransmit_syn"];

const fn now(
    name: &'static str,
    help: &'static str,
    units: &'static str,
    of: fn(&Rates) -> f64,
) -> Counter {
    Counter { name, help, units, zero: true, error: false, from: From::Now(of) }
}

const fn tcp(name: &'static str, help: &'static str, of: &'static [&'static str]) -> Counter {
    Counter { name, help, units: "", zero: false, error: false, from: From::Tcp(of) }
}

const fn udp(name: &'static str, help: &'static str, of: &'static [&'static str]) -> Counter {
    Counter { name, help, units: "", zero: false, error: false, from: From::Udp(of) }
}

const fn error(mut counter: Counter) -> Counter {
    counter.error = true;
    counter
}

const fn octets(mut counter: Counter) -> Counter {
    counter.units = "bytes";
    counter
}

/// All counters, in display order.
pub const COUNTERS: &[Counter] = &[
    now("m_active_flows", "active open flows", "", |r| r.active),
    now("m_est_flows", "active established flows", "", |r| r.established),
    now("m_tx_bw_l7_r", "tx L7 bandwidth, acknowledged", "bps", |r| r.tx_bps),
    now("m_rx_bw_l7_r", "rx L7 bandwidth, acknowledged", "bps", |r| r.rx_bps),
    now("m_tx_pps_r", "tx packets per second", "pps", |r| r.tx_pps),
    now("m_rx_pps_r", "rx packets per second", "pps", |r| r.rx_pps),
    now("m_avg_size", "average packet size", "B", |r| {
        let packets = r.tx_pps + r.rx_pps;
        if packets > 0.0 { (r.tx_bps + r.rx_bps) / packets / 8.0 } else { 0.0 }
    }),
    now("m_traffic_duration", "measured traffic duration", "sec", |r| r.lasted),
    tcp("tcps_connattempt", "connections initiated", &["attempts"]),
    tcp("tcps_accepts", "connections accepted", &["accepts"]),
    tcp("tcps_connects", "connections established", &["established"]),
    tcp("tcps_closed", "connections closed, drops included", ENDED),
    tcp("tcps_delack", "delayed ACKs sent", &["acks_delayed"]),
    tcp("tcps_sndtotal", "total packets sent", &["segments_out"]),
    octets(tcp("tcps_sndbyte", "data bytes sent by the application", &["sent"])),
    octets(tcp("tcps_sndbyte_ok", "data bytes sent and acknowledged", &["acked"])),
    tcp("tcps_sndacks", "ack-only packets sent", &["acks_out"]),
    tcp("tcps_rcvtotal", "total packets received", &["segments_in"]),
    octets(tcp("tcps_rcvbyte", "bytes received in sequence", &["delivered"])),
    octets(tcp("tcps_rcvackbyte", "bytes acknowledged by received ACKs", &["acked"])),
    tcp("tcps_drops", "connections dropped", &["reset"]),
    error(tcp(
        "tcps_conndrops",
        "embryonic connections dropped",
        &["refused", "unreachable", "connect_timeout"],
    )),
    error(tcp("tcps_timeoutdrop", "connections dropped in retransmission timeout", &["timeout"])),
    error(tcp("tcps_rexmttimeo", "retransmission timeouts", &["rto_timeouts"])),
    error(tcp("tcps_rexmttimeo_syn", "retransmission timeouts of SYNs", &["retransmit_syn"])),
    error(tcp("tcps_keepdrops", "connections dropped by keepalive", &["keepalive_timeout"])),
    tcp("tcps_keepprobe", "keepalive probes sent", &["keepalive_probes"]),
    error(tcp("tcps_sndrexmitpack", "data packets retransmitted", RESENT)),
    error(octets(tcp("tcps_sndrexmitbyte", "data bytes retransmitted", &["retransmit_octets"]))),
    error(tcp("tcps_sndprobe", "window probes sent", &["window_probes"])),
    error(tcp("tcps_rcvduppack", "packets that were all duplicate", &["duplicate_segments"])),
    error(tcp("tcps_rcvoopack", "out-of-order packets received", &["out_of_order"])),
    error(octets(tcp("tcps_rcvoobyte", "out-of-order bytes received", &["out_of_order_octets"]))),
    error(tcp("tcps_rcvdupack", "duplicate ACKs received", &["duplicate_acks"])),
    error(tcp("tcps_rcvacktoomuch", "ACKs of data that was not sent", &["acks_too_far"])),
    error(tcp("tcps_rcvpackafterwin", "packets with data after the window", &["out_of_window"])),
    error(tcp("tcps_pawsdrop", "segments dropped by PAWS", &["paws_drops"])),
    udp("udps_accepts", "connections accepted", &["accepts"]),
    udp("udps_connects", "connections established", &["attempts"]),
    udp("udps_closed", "connections closed, drops included", ENDED),
    octets(udp("udps_sndbyte", "data bytes transmitted", &["sent"])),
    udp("udps_sndpkt", "data packets transmitted", &["segments_out"]),
    octets(udp("udps_rcvbyte", "data bytes received", &["delivered"])),
    udp("udps_rcvpkt", "data packets received", &["segments_in"]),
    error(udp("udps_keepdrops", "connections dropped by keepalive", &["idle"])),
    error(Counter {
        name: "err_c_tuple_err",
        help: "flows not started: all addresses and ports of the clients in use",
        units: "",
        zero: false,
        error: true,
        from: From::NotStarted("ports_exhausted"),
    }),
    error(Counter {
        name: "err_c_nf_throttled",
        help: "flows not started: the generator was too slow",
        units: "",
        zero: false,
        error: true,
        from: From::NotStarted("late"),
    }),
    error(Counter {
        name: "err_flow_overflow",
        help: "flows not started: too many open flows",
        units: "",
        zero: false,
        error: true,
        from: From::NotStarted("full"),
    }),
    error(Counter {
        name: "err_redirect_rx",
        help: "flows not started: the next hop does not answer",
        units: "",
        zero: false,
        error: true,
        from: From::NotStarted("unresolved"),
    }),
];

/// The reply to `get_counter_desc`.
pub fn described() -> Vec<Value> {
    let one = |(id, counter): (usize, &Counter)| {
        let current = matches!(counter.from, From::Now(_));
        json!({
            "id": id, "name": counter.name, "help": counter.help, "units": counter.units,
            "zero": counter.zero, "info": if counter.error { "error" } else { "info" },
            "abs": current, "real": current,
        })
    };
    COUNTERS.iter().enumerate().map(one).collect()
}

/// Names of program counters, for which TRex uses letters.
pub fn letters() -> impl Iterator<Item = String> {
    ('A'..='Z').map(String::from)
}

/// Descriptions of program counters, numbered from `first`.
pub fn described_of(names: impl Iterator<Item = String>, first: usize) -> Vec<Value> {
    let one = |(id, name): (usize, String)| {
        json!({
            "id": id, "help": format!("counter {name} of the programs"), "name": name, "units": "",
            "zero": false, "info": "info", "abs": false, "real": true,
        })
    };
    (first..).zip(names).map(one).collect()
}

/// Counters of one side (clients or servers).
#[derive(Clone, Debug, Default)]
pub struct Side {
    tcp: BTreeMap<String, u64>,
    udp: BTreeMap<String, u64>,
    not_begun: BTreeMap<String, u64>,
    /// Counters of programs.
    own: BTreeMap<String, u64>,
    active: u64,
}

impl Rates {
    pub fn lasting(self, lasted: Duration) -> Self {
        Self { lasted: lasted.as_secs_f64(), ..self }
    }

    pub fn cps(&self) -> f64 {
        self.cps
    }

    /// The sum of these counters and those of another profile.
    pub fn with(&self, other: &Self) -> Self {
        Self {
            active: self.active + other.active,
            established: self.established + other.established,
            lasted: self.lasted.max(other.lasted),
            tx_bps: self.tx_bps + other.tx_bps,
            rx_bps: self.rx_bps + other.rx_bps,
            tx_pps: self.tx_pps + other.tx_pps,
            rx_pps: self.rx_pps + other.rx_pps,
            cps: self.cps + other.cps,
        }
    }
}

impl Side {
    fn add(&mut self, role: &RoleReport, over_udp: bool) {
        let counts = if over_udp { &mut self.udp } else { &mut self.tcp };
        add(counts, &role.tcp);
        add(&mut self.not_begun, &role.not_begun);
        add(&mut self.own, &role.counters);
        self.active += role.active;
    }

    /// Adds another profile's counters.
    pub fn merge(&mut self, other: &Self) {
        let Self { tcp, udp, not_begun, own, active } = self;
        add(tcp, &other.tcp);
        add(udp, &other.udp);
        add(not_begun, &other.not_begun);
        add(own, &other.own);
        *active += other.active;
    }

    fn of(&self, name: &str) -> u64 {
        [&self.tcp, &self.udp].iter().filter_map(|counts| counts.get(name)).sum()
    }

    /// Open flows whose handshake is complete; flows over UDP are established from the start.
    fn established(&self) -> u64 {
        let sum = |counts: &BTreeMap<String, u64>, names: &[&str]| -> u64 {
            names.iter().filter_map(|name| counts.get(*name)).sum()
        };
        let connecting = sum(&self.tcp, &["attempts", "accepts"])
            .saturating_sub(sum(&self.tcp, &["established"]))
            .saturating_sub(sum(&self.tcp, ENDED) - sum(&self.tcp, ENDED_LATER));
        self.active.saturating_sub(connecting)
    }

    /// Number of packets in both directions.
    pub fn packets(&self) -> u64 {
        self.of("segments_out") + self.of("segments_in")
    }

    /// Rates since the counters `then`, which were taken `seconds` earlier.
    pub fn rates(&self, then: &Self, seconds: f64) -> Rates {
        let rate = |name: &str| self.of(name).saturating_sub(then.of(name)) as f64 / seconds;
        Rates {
            active: self.active as f64,
            established: self.established() as f64,
            lasted: 0.0,
            tx_bps: rate("sent") * 8.0,
            rx_bps: rate("delivered") * 8.0,
            tx_pps: rate("segments_out"),
            rx_pps: rate("segments_in"),
            cps: rate("attempts"),
        }
    }

    /// Values by counter number; omits zeros.
    pub fn values(&self, rates: &Rates) -> Map<String, Value> {
        let sum = |counts: &BTreeMap<String, u64>, names: &[&str]| -> u64 {
            names.iter().filter_map(|name| counts.get(*name)).sum()
        };
        let value = |counter: &Counter| match counter.from {
            From::Tcp(names) => json!(sum(&self.tcp, names)),
            From::Udp(names) => json!(sum(&self.udp, names)),
            From::NotStarted(why) => json!(sum(&self.not_begun, &[why])),
            From::Now(of) => json!(of(rates)),
        };
        let all = COUNTERS.iter().map(value).enumerate();
        all.filter(|(_, value)| value.as_f64() != Some(0.0))
            .map(|(id, value)| (id.to_string(), value))
            .collect()
    }

    /// Values of program counters, numbered from `first`; omits zeros.
    pub fn values_of(
        &self,
        names: impl Iterator<Item = String>,
        first: usize,
    ) -> Map<String, Value> {
        let value = |(id, name): (usize, String)| Some((id.to_string(), *self.own.get(&name)?));
        let all = (first..).zip(names).filter_map(value).filter(|(_, n)| *n > 0);
        all.map(|(id, n)| (id, json!(n))).collect()
    }

    /// Number of flows that this side has started or accepted.
    pub fn begun(&self) -> u64 {
        self.of("attempts") + self.of("accepts")
    }

    pub fn active(&self) -> u64 {
        self.active
    }
}

fn add(to: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>) {
    for (name, n) in from {
        *to.entry(name.clone()).or_default() += n;
    }
}

/// Both sides of the templates in `udp`, which maps a name to whether it runs over UDP.
pub fn sides(report: &FlowsReport, udp: &HashMap<String, bool>) -> [Side; 2] {
    let mut sides = [Side::default(), Side::default()];
    for template in &report.templates {
        let Some(&over_udp) = udp.get(&template.name) else { continue };
        for (side, role) in sides.iter_mut().zip([&template.roles.client, &template.roles.server]) {
            if let Some(role) = role {
                side.add(role, over_udp);
            }
        }
    }
    sides
}
