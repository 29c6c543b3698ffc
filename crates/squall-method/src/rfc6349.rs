//! RFC 6349: TCP throughput compared with the capacity of the path.

use squall_report::render::human::{ns, ratio, seconds, si};

use crate::{
    bench::{Bench, Halt},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    settings::{WEEK, above_0, at_most, from, settings},
    trial::{FlowLoad, FlowsMeasured, Http, Lane, Measured, Trial},
};

settings! {
    "RFC 6349":
    /// Bottleneck bandwidth of the path, bits per second on layer 2; without it, it is measured by
    /// the throughput of the profile's first stream (RFC 2544)
    bottleneck_bps: Option<f64> = None => given("BPS");
    /// Numbers of TCP connections to test with (§5.1)
    connections: Vec<u32> = vec![1, 4] => each("N");
    /// Length that a transfer would have on an ideal path, seconds (§5: at least 30)
    transfer_s: f64 = 30.0 => one("SECONDS"), quick at_most(2.0), in above_0(WEEK);
    /// Length of the measurement of the round-trip time without load, seconds
    baseline_s: f64 = 10.0 => one("SECONDS"), quick at_most(1.0), in above_0(WEEK);
    /// Frames per second of the streams that measure the round-trip time during a transfer
    probe_fps: f64 = 100.0 => one("N"), in above_0(1e6);
    /// Largest frame to try for the path MTU, octets with FCS
    largest_frame: u32 = 1518 => one("OCTETS"), in from(SMALLEST);
    /// Length of a trial that searches the bottleneck, seconds
    trial_s: f64 = 10.0 => one("SECONDS"), quick at_most(1.0), in above_0(WEEK);
}

/// Octets of Ethernet with FCS, and of IPv4 and TCP without options.
const ETHERNET: u32 = 18;
const HEADERS: f64 = 40.0;
pub(crate) const SMALLEST: u32 = 128;

impl Settings {
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), Halt> {
        self.limits()?;
        above_0(1e13)("bottleneck_bps", &self.bottleneck_bps.unwrap_or(1.0))?;
        if self.connections.is_empty() || self.connections.contains(&0) {
            return Err(Halt::Usage("connections: expected numbers above 0, such as 1,4".into()));
        }
        Ok(())
    }
}

/// Properties of the path, measured before the transfers.
struct Path {
    /// Largest IP packet, octets.
    mtu: u32,
    rtt_ns: f64,
    /// Bottleneck bandwidth on layer 2.
    bottleneck_bps: f64,
}

impl Path {
    /// §4.1.1: the highest TCP throughput at the bottleneck bandwidth.
    fn tcp_bps(&self) -> f64 {
        let mtu = f64::from(self.mtu);
        self.bottleneck_bps * (mtu - HEADERS) / (mtu + f64::from(ETHERNET))
    }

    /// Bandwidth-delay product (§3.3.1), octets.
    fn bdp(&self) -> f64 {
        self.rtt_ns / 1e9 * self.bottleneck_bps / 8.0
    }
}

/// # Errors
/// If a trial cannot run, if the test is stopped, or if the profile has no streams or no flows.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Halt> {
    settings.check()?;
    if rig.lanes.is_empty() {
        return Err(Halt::Usage(
            "rfc6349 measures MTU and round-trip time by streams, and the profile has none\n  add \
             a [[stream]] for each direction"
                .into(),
        ));
    }
    let Some(mtu) = path_mtu(settings, rig, bench)? else {
        outcome.verdict.status = crate::Status::Failed;
        outcome.verdict.text.push("no frame of the streams came through".into());
        return Ok(());
    };
    let idle = bench.trial(Trial {
        label: "round-trip time without load".into(),
        lanes: probes(settings, rig),
        duration_s: settings.baseline_s,
        ..Trial::default()
    })?;
    let rtt_ns = round_trip(&idle, |delay| delay.min as f64).unwrap_or(0.0);
    let bottleneck_bps = match settings.bottleneck_bps {
        Some(bps) => bps,
        None => bottleneck(settings, rig, mtu, bench)?,
    };
    let path = Path { mtu, rtt_ns, bottleneck_bps };
    report_path(&path, outcome);
    if bottleneck_bps <= 0.0 {
        outcome.notes.push("the bottleneck was not found: give bottleneck_bps".into());
        return Ok(());
    }
    transfers(settings, rig, &path, bench, outcome)
}

/// The first stream of each sending port.
fn probes(settings: &Settings, rig: &Rig) -> Vec<Lane> {
    let mut ports: Vec<&str> = Vec::new();
    let mut lanes = Vec::new();
    for lane in &rig.lanes {
        if !ports.contains(&lane.port.as_str()) {
            ports.push(&lane.port);
            lanes.push(Lane {
                name: lane.stream.clone(),
                stream: lane.stream.clone(),
                frame_size: Some(SMALLEST),
                rate_fps: settings.probe_fps,
                ..Lane::default()
            });
        }
    }
    lanes
}

/// Sum of the delays of both directions; with streams in one direction only, twice their delay.
fn round_trip(measured: &Measured, of: impl Fn(&crate::Delay) -> f64) -> Option<f64> {
    let ways: Option<Vec<f64>> =
        measured.lanes.iter().take(2).map(|lane| lane.delay.as_ref().map(&of)).collect();
    match ways?.as_slice() {
        [one] => Some(2.0 * one),
        [there, back] => Some(there + back),
        _ => None,
    }
}

/// Probes the path MTU as in RFC 4821: the largest packet that passes, octets.
fn path_mtu(settings: &Settings, rig: &Rig, bench: &mut Bench<'_>) -> Result<Option<u32>, Halt> {
    let (mut passed, mut failed) = (SMALLEST - 1, settings.largest_frame + 1);
    let mut next = settings.largest_frame;
    while failed - passed > 1 {
        let lane = Lane {
            name: rig.lanes[0].stream.clone(),
            stream: rig.lanes[0].stream.clone(),
            frame_size: Some(next),
            rate_fps: settings.probe_fps,
            frames: Some(10),
            ..Lane::default()
        };
        let duration_s = 10.0 / settings.probe_fps;
        let label = format!("path MTU, frames of {next} octets");
        let trial = Trial { label, lanes: vec![lane], duration_s, ..Trial::default() };
        let came = bench.trial(trial)?.lanes.iter().any(|lane| lane.received > 0);
        if came {
            passed = next
        } else {
            failed = next
        }
        next = passed + (failed - passed) / 2;
    }
    Ok((passed >= SMALLEST).then(|| passed - ETHERNET))
}

/// §3.2.2 refers to RFC 2544 for the bottleneck bandwidth.
fn bottleneck(
    settings: &Settings,
    rig: &Rig,
    mtu: u32,
    bench: &mut Bench<'_>,
) -> Result<f64, Halt> {
    let first = Rig { lanes: rig.lanes.iter().take(1).cloned().collect(), ..rig.clone() };
    let search = crate::rfc2544::Settings {
        trial_s: settings.trial_s,
        resolution: 0.01,
        ..Default::default()
    };
    let size = mtu + ETHERNET;
    let found = crate::rfc2544::throughput(&search, &first, size, "bottleneck bandwidth", bench)?;
    Ok(found.fps * f64::from(size) * 8.0)
}

fn report_path(path: &Path, outcome: &mut Outcome) {
    let mut table = Table::new("The path", &["", "Measured"]);
    let bdp = path.bdp();
    for (name, value) in [
        ("path MTU (§3.1)", format!("{} octets", path.mtu)),
        ("baseline round-trip time (§3.2.1)", ns(path.rtt_ns)),
        ("bottleneck bandwidth (§3.2.2)", si(path.bottleneck_bps, "bit/s")),
        ("bandwidth-delay product, least TCP window (§3.3.1)", si(bdp, "octets")),
        ("highest TCP throughput (§4.1.1)", si(path.tcp_bps(), "bit/s")),
    ] {
        table.rows.push(vec![name.into(), value]);
    }
    outcome.tables.push(table);
    let mut push = |name: &str, value, unit: &str, better, uncertainty| {
        outcome.figures.push(Figure::new(name, value, unit, better, uncertainty, Limit::Device));
    };
    push("mtu", f64::from(path.mtu), "octets", Better::Higher, 0.0);
    push("rtt", path.rtt_ns, "ns", Better::Lower, path.rtt_ns * 0.05);
    push("bottleneck", path.bottleneck_bps, "bit/s", Better::Higher, path.bottleneck_bps * 0.01);
}

fn transfers(
    settings: &Settings,
    rig: &Rig,
    path: &Path,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Halt> {
    let columns = [
        "Connections",
        "Ideal transfer",
        "Actual",
        "Transfer time ratio",
        "TCP efficiency",
        "Buffer delay",
        "TCP throughput",
    ];
    let mut table = Table::new("TCP throughput (RFC 6349 §4)", &columns);
    for &connections in &settings.connections {
        let measured = bench.trial(transfer(settings, rig, path, connections))?;
        let flows = measured.flows.clone().unwrap_or_default();
        if !measured.kept() || flows.completed < u64::from(connections) {
            outcome.notes.push(format!(
                "{connections} connections: not measured: {}",
                match measured.kept() {
                    true => crate::connections::why(&flows),
                    false => "the generator did not keep to the load".into(),
                }
            ));
            continue;
        }
        report_transfer(settings, path, connections, &measured, &flows, &mut table, outcome);
    }
    outcome.tables.push(table);
    Ok(())
}

/// The octets of a connection, so that all connections together take `transfer_s` on an ideal path.
fn octets(settings: &Settings, path: &Path, connections: u32) -> u64 {
    (path.tcp_bps() * settings.transfer_s / 8.0 / f64::from(connections)).max(1.0) as u64
}

fn transfer(settings: &Settings, rig: &Rig, path: &Path, connections: u32) -> Trial {
    let http = Http {
        object_octets: octets(settings, path, connections),
        requests: 1,
        think_s: 0.0,
        tls: false,
    };
    let load = FlowLoad {
        // Open all connections within 1 % of the time.
        cps: f64::from(connections) / (settings.transfer_s / 100.0),
        limit: Some(connections.into()),
        http: Some(http),
        ..FlowLoad::default()
    };
    // §4.3 averages over the transfer: after its ideal time the path may be idle.
    let probe = |lane| Lane { duration_s: Some(settings.transfer_s), ..lane };
    Trial {
        label: format!("transfer, {connections} connections"),
        lanes: probes(settings, rig).into_iter().map(probe).collect(),
        // A path with loss takes longer. A trial ends after three times the ideal time at the
        // latest.
        duration_s: settings.transfer_s * 3.0,
        flows: Some(load),
        ..Trial::default()
    }
}

fn report_transfer(
    settings: &Settings,
    path: &Path,
    connections: u32,
    measured: &Measured,
    flows: &FlowsMeasured,
    table: &mut Table,
    outcome: &mut Outcome,
) {
    let ideal_s =
        octets(settings, path, connections) as f64 * f64::from(connections) * 8.0 / path.tcp_bps();
    let actual_s = flows.duration.map_or(f64::NAN, |duration| duration.max as f64 / 1e9);
    let time_ratio = actual_s / ideal_s;
    let sent = flows.tcp_sent_octets.max(1) as f64;
    let efficiency = (sent - flows.tcp_resent_octets as f64) / sent;
    let loaded = round_trip(measured, |delay| delay.mean);
    let buffer_delay = loaded
        .filter(|_| path.rtt_ns > 0.0)
        .map(|loaded| (loaded - path.rtt_ns).max(0.0) / path.rtt_ns);
    let throughput = flows.received_octets as f64 * 8.0 / actual_s;
    let mut push = |name: &str, value: f64, unit: &str, better, noise: f64| {
        outcome.figures.push(Figure {
            name: format!("{name}/{connections}"),
            value,
            unit: unit.into(),
            better,
            uncertainty: value * noise,
            limit: Limit::Device,
        });
    };
    push("transfer_time_ratio", time_ratio, "", Better::Lower, 0.02);
    push("tcp_efficiency", efficiency, "ratio", Better::Higher, 0.001);
    push("tcp_throughput", throughput, "bit/s", Better::Higher, 0.02);
    if let Some(delay) = buffer_delay {
        push("buffer_delay", delay, "ratio", Better::Lower, 0.1);
    }
    table.rows.push(vec![
        connections.to_string(),
        seconds(ideal_s),
        seconds(actual_s),
        format!("{time_ratio:.3}"),
        ratio(efficiency),
        buffer_delay.map_or_else(|| "-".into(), ratio),
        si(throughput, "bit/s"),
    ]);
    let text = format!(
        "{connections} connections: {} of {} possible, transfer time ratio {time_ratio:.2}",
        si(throughput, "bit/s"),
        si(path.tcp_bps(), "bit/s"),
    );
    outcome.verdict.text.push(text);
}
