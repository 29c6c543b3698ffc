//! Measures the noise floor of receiving on this machine: the deviation of the gaps when Squall
//! receives its own steady stream.
//!
//! Follows Zander, Kennedy, Armitage: KUTE, a high performance kernel-based UDP traffic engine. The
//! squares of independent deviations add up: s_total² = s_sender² + s_receiver². Each frame
//! contains the time at which the sender passed it to the port, so both terms can be determined.
//! The differences between the delays of consecutive frames are the part that port, kernel, wire
//! and timestamp add to the gaps. The rest of the total is due to the sender.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use squall::{
    Error, Session,
    report::{Distribution, Host, ReceivedFlowsReport, Report},
};
use squall_options::ReceivedFlows;
use squall_units::remaining_sd;

/// Schema version of [`Floor`].
pub const SCHEMA: &str = "squall-floor/1";
/// Rates in frames per second; enough to see how the floor depends on the rate.
pub const RATES: [u32; 4] = [1_000, 10_000, 50_000, 100_000];

/// Measurements at several rates, with conclusions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// `squall-floor/1`.
    pub schema: String,
    pub squall_version: String,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    pub host: Host,
    /// Addresses of the sending and the receiving port.
    pub ports: [String; 2],
    /// Source of receive timestamps: `process`, `kernel`, `hardware`, `virtual`.
    pub timestamps: String,
    /// Resolution of all timestamps.
    pub timestamp_resolution_ns: Option<u64>,
    /// Measurements, sorted by ascending rate.
    pub rates: Vec<FloorAt>,
    /// Whether the sender reached every rate and no frame was lost.
    pub valid: bool,
    /// Conclusions, one sentence each.
    pub verdict: Vec<String>,
}

/// Measurement at one rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FloorAt {
    pub asked_pps: f64,
    pub pps: f64,
    pub packets: u64,
    pub lost: u64,
    /// Standard deviation of the gaps between received frames: s_total.
    pub gap_stddev_ns: f64,
    /// Standard deviation due to the receiver, which includes everything after the sender has
    /// passed the frame to the port: the root mean square of the delay differences.
    pub receiver_stddev_ns: f64,
    /// Standard deviation due to the sender: sqrt(s_total² - s_receiver²), at least 0.
    pub sender_stddev_ns: f64,
    /// Departure error, as measured by the sender.
    pub departure_error_p99_ns: u64,
    pub gap_p99_ns: u64,
    pub latency_min_ns: u64,
    pub latency_p50_ns: u64,
    pub latency_p99_ns: u64,
    pub latency_stddev_ns: f64,
}

/// Sends at each of `rates` for `time` from the first port to the second, and measures the received
/// stream. Calls `report_rate` for each rate.
///
/// # Errors
/// A port cannot be opened.
pub fn run(
    ports: [String; 2],
    rates: &[u32],
    time: Duration,
    mut report_rate: impl FnMut(&FloorAt),
) -> Result<Floor, Error> {
    let mut floor = Floor {
        schema: SCHEMA.into(),
        squall_version: env!("CARGO_PKG_VERSION").into(),
        ports,
        valid: true,
        ..Floor::default()
    };
    for &rate in rates {
        let report = measure(&floor.ports, rate, time)?;
        let at = FloorAt::of(&report, rate);
        report_rate(&at);
        floor.valid &= report.verdict.valid && at.lost == 0 && at.packets > 0;
        let receiver = &report.ports[1];
        floor.timestamps.clone_from(&receiver.timestamps);
        let resolution = receiver.rx.timestamp_resolution_ns;
        floor.timestamp_resolution_ns = match (floor.timestamp_resolution_ns, resolution) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        (floor.started, floor.host) = (report.started, report.host);
        floor.rates.push(at);
    }
    floor.verdict = floor.judge();
    Ok(floor)
}

fn measure(ports: &[String; 2], rate: u32, time: Duration) -> Result<Report, Error> {
    let text = format!(
        "duration = \"{} ms\"\n[ports]\nA = {:?}\nB = {:?}\n[[stream]]\nname = \"steady\"\nport = \
         \"A\"\npacket = \
         \"eth/ipv4(src=198.18.0.1,dst=198.19.0.1)/udp(sport=1024,dport=1025)\"\nsize = 128\nrate \
         = {rate}\nlatency = true\n",
        time.as_millis(),
        ports[0],
        ports[1],
    );
    let profile = squall::Profile::parse(&text, "<self-test>", squall::Format::Toml)?;
    // Measure flows as well, like `squall recv`: the cost of its other measurements and the
    // timestamp resolution are part of the floor.
    let mut session = Session::new(profile).command("squall recv --self-test");
    session.options.received_flows = Some(ReceivedFlows::Measured(true));
    session.open()?.start()?.finish()
}

impl FloorAt {
    fn of(report: &Report, rate: u32) -> Self {
        let none = Distribution::default();
        let stream = report.streams.first();
        let rx = stream.and_then(|s| s.rx.as_ref());
        let of = |d: Option<&Distribution>| d.cloned().unwrap_or_else(|| none.clone());
        let gap = of(rx.and_then(|rx| rx.arrival_gap_ns.as_ref()));
        let delay = of(rx.and_then(|rx| rx.latency_ns.as_ref()));
        let variation = of(rx.and_then(|rx| rx.ipdv_ns.as_ref()));
        // Compute the root mean square from the mean and deviation of the absolute values. The mean
        // of the signed values would be 0.
        let receiver = variation.mean.hypot(variation.stddev);
        Self {
            asked_pps: f64::from(rate),
            pps: stream.map_or(0.0, |s| s.tx_pps),
            packets: rx.map_or(0, |rx| rx.packets),
            lost: rx.map_or(0, |rx| rx.lost),
            gap_stddev_ns: gap.stddev,
            receiver_stddev_ns: receiver,
            sender_stddev_ns: remaining_sd(gap.stddev, receiver),
            departure_error_p99_ns: stream
                .and_then(|s| s.departure_error_ns.as_ref())
                .map_or(0, |d| d.p99),
            gap_p99_ns: gap.p99,
            latency_min_ns: delay.min,
            latency_p50_ns: delay.p50,
            latency_p99_ns: delay.p99,
            latency_stddev_ns: delay.stddev,
        }
    }
}

impl Floor {
    /// Parses the output of [`Floor::to_json`].
    ///
    /// # Errors
    /// The text is not a floor; the message gives the reason.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let floor: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match floor.schema.as_str() {
            SCHEMA if !floor.rates.is_empty() => Ok(floor),
            other => Err(format!(
                "its schema is {other:?} with {} rates: expected {SCHEMA:?}",
                floor.rates.len()
            )),
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("a floor has string keys and no custom serializers")
    }

    /// The receiver's deviation at the nearest measured rate, where the distance is the ratio of
    /// the rates.
    pub fn receiver_stddev_ns(&self, pps: f64) -> f64 {
        let distance = |at: &&FloorAt| (at.asked_pps.max(1.0) / pps.max(1.0)).ln().abs();
        let nearest = self.rates.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map_or(0.0, |at| at.receiver_stddev_ns)
    }

    /// Adds to each flow its gap deviation without the receiver's part.
    pub fn annotate(&self, report: &mut ReceivedFlowsReport) {
        for flow in &mut report.flows {
            let Some(gap) = &flow.arrival_gap_ns else { continue };
            let floor = self.receiver_stddev_ns(flow.pps);
            flow.gap_floor_ns = Some(floor);
            flow.gap_stddev_corrected_ns = Some(remaining_sd(gap.stddev, floor));
        }
    }

    fn judge(&self) -> Vec<String> {
        use squall_report::render::human::ns;
        let worst = self.rates.iter().map(|at| at.receiver_stddev_ns).fold(0.0, f64::max);
        let best = self.rates.iter().map(|at| at.receiver_stddev_ns).fold(f64::INFINITY, f64::min);
        let delay = self.rates.iter().map(|at| at.latency_p50_ns).max().unwrap_or(0);
        let mut verdict = vec![
            format!(
                "standard deviations of gaps below {} to {} (by rate) come from this receiver, \
                 not from the traffic",
                ns(best.min(worst)),
                ns(worst)
            ),
            format!("one-way delays include up to {} (median) of this machine", ns(delay as f64)),
        ];
        if let Some(resolution) = self.timestamp_resolution_ns.filter(|ns| *ns > 1) {
            verdict.push(format!(
                "times below {} cannot be seen: the timestamps are multiples of it",
                ns(resolution as f64)
            ));
        }
        if !self.valid {
            verdict.push(
                "NOT VALID: frames were lost or late; try again when the machine is idle, or \
                 --cpus"
                    .into(),
            );
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor() -> Floor {
        let at = |asked_pps, receiver_stddev_ns| FloorAt {
            asked_pps,
            receiver_stddev_ns,
            ..FloorAt::default()
        };
        Floor {
            schema: SCHEMA.into(),
            rates: vec![at(1e3, 3000.0), at(1e5, 400.0)],
            ..Floor::default()
        }
    }

    #[test]
    fn the_floor_of_the_nearest_rate_is_subtracted_but_never_below_zero() {
        use squall::report::ReceivedFlowReport;
        let flow = |pps, stddev| ReceivedFlowReport {
            pps,
            arrival_gap_ns: Some(Distribution { stddev, ..Distribution::default() }),
            ..ReceivedFlowReport::default()
        };
        let flows = vec![flow(900.0, 5000.0), flow(2e6, 300.0), ReceivedFlowReport::default()];
        let mut report = ReceivedFlowsReport { flows, ..ReceivedFlowsReport::default() };
        floor().annotate(&mut report);
        let figures =
            |i: usize| (report.flows[i].gap_floor_ns, report.flows[i].gap_stddev_corrected_ns);
        assert_eq!(figures(0), (Some(3000.0), Some(4000.0)));
        assert_eq!(figures(1), (Some(400.0), Some(0.0)));
        assert_eq!(figures(2), (None, None));
    }

    #[test]
    fn a_floor_reads_back_and_other_files_are_refused() {
        assert_eq!(Floor::from_json(&floor().to_json()), Ok(floor()));
        for text in ["", "{}", "[]"] {
            assert!(Floor::from_json(text).is_err(), "{text}");
        }
        let other = Floor { schema: "squall-report/1".into(), ..floor() }.to_json();
        assert!(Floor::from_json(&other).unwrap_err().contains("squall-floor/1"));
    }

    #[test]
    fn a_loop_has_a_floor_and_loses_nothing() {
        let ports = ["loop:self-test", "loop:self-test"].map(str::to_owned);
        let measured = |_| {
            let mut rates_reported = 0;
            let floor = run(ports.clone(), &[1000, 2000], Duration::from_millis(100), |_| {
                rates_reported += 1
            })
            .unwrap();
            assert_eq!(
                (rates_reported, floor.rates.len(), floor.timestamps.as_str()),
                (2, 2, "process")
            );
            assert!(floor.rates.iter().all(|at| at.lost == 0), "{floor:?}");
            floor
        };
        // A busy machine may fail to send all frames in time.
        let all =
            |floor: &Floor| floor.rates.iter().all(|at| at.packets == at.asked_pps as u64 / 10);
        let floor = (0..5).map(measured).find(all).expect("all is sent, once at least");
        assert!(floor.verdict[0].contains("standard deviations of gaps"), "{floor:?}");
    }
}
